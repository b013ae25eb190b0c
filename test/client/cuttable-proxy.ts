import net from 'node:net'

/** A port that stays, in front of servers that come and go, whose connections can be cut. */
export interface CuttableProxy {
  readonly port: number
  /** Connections taken so far. */
  readonly connections: number
  /** Cuts connections, as when a network fails: all, or each with this chance. Returns how many. */
  cut(chance?: number): number
  close(): Promise<void>
}

/** @param ports of the servers that are there now; each new connection goes to any of them, and nowhere if there is none */
export async function startCuttableProxy(ports: () => readonly number[]): Promise<CuttableProxy> {
  let connections = 0
  const clients = new Set<net.Socket>()
  const server = net.createServer((client) => {
    connections++
    const candidates = ports()
    const port = candidates[Math.floor(Math.random() * candidates.length)]
    if (port === undefined) {
      client.destroy()
      return
    }
    const upstream = net.connect(port, '127.0.0.1')
    clients.add(client)
    client.on('close', () => clients.delete(client))
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => other.destroySoon())
      one.pipe(other)
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))

  function cut(chance = 1): number {
    const victims = [...clients].filter(() => Math.random() < chance)
    for (const client of victims) client.destroy()
    return victims.length
  }

  return {
    port: (server.address() as net.AddressInfo).port,
    get connections() {
      return connections
    },
    cut,
    async close() {
      cut()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
