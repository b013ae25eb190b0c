import type { Server } from 'node:http'
import type { Socket } from 'node:net'

/** The connections of a server, as far as Node does not look after them. */
export interface Connections {
  /**
   * Cuts those that have not asked for anything yet, such as those that browsers open in advance: Node does not count
   * them as idle, and would wait for them at the end.
   */
  destroyUnused(): void
  /** Cuts all of them, also those that were to become something other than HTTP, of which Node lets go. */
  destroyAll(): void
}

/** Follows the connections of a server. */
export function followConnections(server: Server): Connections {
  const all = new Set<Socket>()
  const unused = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    all.add(socket)
    unused.add(socket)
    socket.once('close', () => {
      all.delete(socket)
      unused.delete(socket)
    })
  })
  server.on('request', (request) => unused.delete(request.socket))
  server.on('upgrade', (request) => unused.delete(request.socket))
  const destroy = (sockets: Iterable<Socket>) => {
    for (const socket of sockets) socket.destroy()
  }
  return { destroyUnused: () => destroy(unused), destroyAll: () => destroy(all) }
}
