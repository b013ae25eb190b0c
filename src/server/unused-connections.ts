import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Follows the connections that have not asked for anything yet, such as those that browsers open in advance: Node does
 * not count them as idle, and would wait for them at the end.
 */
export function followUnusedConnections(server: Server): { destroy(): void } {
  const unused = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    unused.add(socket)
    socket.once('close', () => unused.delete(socket))
  })
  server.on('request', (request) => unused.delete(request.socket))
  server.on('upgrade', (request) => unused.delete(request.socket))
  return {
    destroy() {
      for (const socket of unused) socket.destroy()
    },
  }
}
