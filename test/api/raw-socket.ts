import { WebSocket } from 'ws'
import { until } from '../support/until.ts'

/** A frame of graphql-transport-ws. */
export interface Frame {
  type: string
  id?: string
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  payload?: any
}

/** A client that shows every frame as it came, where a library's client would hide the fault. */
export class RawSocket {
  readonly frames: Frame[] = []
  closed: { code: number; reason: string } | undefined
  readonly webSocket: WebSocket

  private constructor(webSocket: WebSocket) {
    this.webSocket = webSocket
    webSocket.on('message', (data) => this.frames.push(JSON.parse(String(data))))
    webSocket.on('close', (code, reason) => {
      this.closed = { code, reason: String(reason) }
    })
    webSocket.on('error', () => {})
  }

  static async open(url: string, headers: Record<string, string> = {}): Promise<RawSocket> {
    const webSocket = new WebSocket(url, 'graphql-transport-ws', { headers })
    const socket = new RawSocket(webSocket)
    await new Promise((resolve, reject) => {
      webSocket.once('open', resolve)
      webSocket.once('error', reject)
    })
    return socket
  }

  send(frame: unknown): void {
    this.webSocket.send(typeof frame === 'string' ? frame : JSON.stringify(frame))
  }

  async init(payload?: object): Promise<void> {
    this.send({ type: 'connection_init', ...(payload && { payload }) })
    await until(() => this.frames.some((frame) => frame.type === 'connection_ack'), { what: 'connection_ack' })
  }

  subscribe(id: string, query: string, variables: Record<string, unknown> = {}): void {
    this.send({ id, type: 'subscribe', payload: { query, variables } })
  }

  /** Frames of one operation. */
  of(id: string): Frame[] {
    return this.frames.filter((frame) => frame.id === id)
  }

  /** Payloads of the `next` frames of one operation. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  next(id: string): any[] {
    return this.of(id)
      .filter((frame) => frame.type === 'next')
      .map((frame) => frame.payload)
  }

  /** Waits for a frame of an operation. */
  async frame(id: string, type: string): Promise<Frame> {
    return until(() => this.of(id).find((frame) => frame.type === type), { what: `${type} of ${id}` })
  }

  close(): void {
    this.webSocket.terminate()
  }
}
