import net from 'node:net'

/** A TCP proxy in front of PostgreSQL that can be made to misbehave. */
export interface TestProxy {
  readonly connectionString: string
  /**
   * - `pass`: lets everything through.
   * - `swallow`: connections stay open, but nothing goes through any more, as when a host or a firewall in between dies.
   * - `deaf`: swallows notifications only, as a pooler in transaction mode does.
   */
  mode: 'pass' | 'swallow' | 'deaf'
  /** Connections taken so far. */
  readonly connections: number
  /** Runs a statement in every session, unseen by the clients, as a pooler does that resets its sessions. */
  inject(sql: string): void
  close(): Promise<void>
}

const NOTIFICATION = 'A'.charCodeAt(0)
const READY = 'Z'.charCodeAt(0)

export async function startProxy(target: string): Promise<TestProxy> {
  const { hostname, port } = new URL(target)
  const sockets = new Set<net.Socket>()
  const injectors = new Set<(sql: string) => void>()
  let connections = 0

  const server = net.createServer((client) => {
    connections++
    const upstream = net.connect(Number(port), hostname)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => sockets.delete(socket))
    }
    client.on('data', (data) => {
      if (proxy.mode !== 'swallow') upstream.write(data)
    })
    const messages = backendMessages()
    let injected = false
    const inject = (sql: string) => {
      injected = true
      upstream.write(queryMessage(sql))
    }
    injectors.add(inject)
    upstream.on('data', (data) => {
      for (const message of messages(data)) {
        const dropped = proxy.mode === 'swallow' || (proxy.mode === 'deaf' && message[0] === NOTIFICATION)
        if (!dropped && !injected) client.write(message)
        if (message[0] === READY) injected = false
      }
    })
    upstream.on('close', () => injectors.delete(inject))
    // A swallowed connection does not learn of the other side's end either.
    client.on('close', () => proxy.mode !== 'swallow' && upstream.destroy())
    upstream.on('close', () => proxy.mode !== 'swallow' && client.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as net.AddressInfo).port)

  const proxy: TestProxy = {
    connectionString: url.href,
    mode: 'pass',
    get connections() {
      return connections
    },
    inject(sql) {
      for (const inject of injectors) inject(sql)
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return proxy
}

/** Splits what the server says into its messages: a letter, a length that counts itself, the rest. */
function backendMessages(): (data: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0)
  return (data) => {
    rest = Buffer.concat([rest, data])
    const messages: Buffer[] = []
    while (rest.length >= 5) {
      const length = 1 + rest.readUInt32BE(1)
      if (rest.length < length) break
      messages.push(rest.subarray(0, length))
      rest = rest.subarray(length)
    }
    return messages
  }
}

function queryMessage(sql: string): Buffer {
  const text = Buffer.from(`${sql}\0`)
  const head = Buffer.alloc(5)
  head.write('Q')
  head.writeUInt32BE(4 + text.length, 1)
  return Buffer.concat([head, text])
}
