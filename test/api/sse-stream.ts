/** One event of a stream. */
export interface SseEvent {
  event: string
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  data: any
}

/** A subscription over server-sent events, read by hand. */
export class SseStream {
  readonly events: SseEvent[] = []
  ended = false
  readonly response: Response
  readonly #abort: AbortController

  private constructor(response: Response, abort: AbortController) {
    this.response = response
    this.#abort = abort
    this.#read().then(
      () => {
        this.ended = true
      },
      () => {
        this.ended = true
      },
    )
  }

  static async open(
    url: string,
    query: string,
    variables: Record<string, unknown> = {},
    token?: string,
  ): Promise<SseStream> {
    const abort = new AbortController()
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'text/event-stream',
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify({ query, variables }),
      signal: abort.signal,
    })
    return new SseStream(response, abort)
  }

  /** Payloads of the `next` events. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  next(): any[] {
    return this.events.filter(({ event }) => event === 'next').map(({ data }) => data)
  }

  close(): void {
    this.#abort.abort()
  }

  async #read(): Promise<void> {
    let text = ''
    const decoder = new TextDecoder()
    for await (const chunk of this.response.body!) {
      text += decoder.decode(chunk as Uint8Array, { stream: true })
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        this.#take(text.slice(0, end))
        text = text.slice(end + 2)
      }
    }
  }

  #take(block: string): void {
    const fields = new Map(block.split('\n').map((line) => [line.split(':', 1)[0], line.replace(/^[^:]*: ?/, '')]))
    const event = fields.get('event')
    if (event === undefined) return
    const data = fields.get('data')
    this.events.push({ event, data: data ? JSON.parse(data) : null })
  }
}
