import { ClientError, ConnectionLostError, errorOf, type GraphQLErrorLike, UnauthenticatedError } from './errors.ts'
import { readEvents } from './event-stream.ts'
import { type Operation, type Result, type Token, TokenSource, type Transport } from './transport.ts'

/** How to reach the API over server-sent events. */
export interface SseOptions {
  /** Such as `https://jobs.example.com/graphql`. */
  url: string
  token?: Token | undefined
  /** Sent with each request. */
  headers?: Record<string, string> | undefined
  /** Default: the global one. */
  fetch?: typeof fetch | undefined
  /** A connection on which nothing has come for so long is given up, in milliseconds; default 45,000. */
  silenceMs?: number | undefined
}

/** Subscriptions over server-sent events: one request each, which any proxy lets through. */
export function sse(options: SseOptions): Transport {
  const { url, headers = {}, silenceMs = 45_000 } = options
  const tokens = new TokenSource(options.token)
  const send: typeof fetch = options.fetch ?? ((...given) => fetch(...given))

  async function request(operation: Operation, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const token = await tokens.get()
    const response = await send(url, {
      method: 'POST',
      headers: {
        ...headers,
        'content-type': 'application/json',
        accept: 'text/event-stream',
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      body: JSON.stringify(operation),
      signal,
    }).catch((error: unknown) => {
      throw new ConnectionLostError('The server cannot be reached.', { cause: error })
    })
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    if (response.ok && isStream && response.body !== null) return response.body as ReadableStream<Uint8Array>
    throw await refusalOf(response)
  }

  return {
    async *run(operation, signal) {
      const connection = new AbortController()
      const leave = () => connection.abort()
      if (signal.aborted) return
      signal.addEventListener('abort', leave)
      let timer: ReturnType<typeof setTimeout> | undefined
      const alive = () => {
        clearTimeout(timer)
        timer = setTimeout(leave, silenceMs)
      }
      try {
        alive()
        const body = await request(operation, connection.signal)
        tokens.accept()
        for await (const { event, data } of readEvents(body, alive)) {
          if (event === 'complete') return
          if (event !== 'next') continue
          const result = JSON.parse(data) as Result
          tokens.look(result.errors)
          yield result
        }
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof UnauthenticatedError) tokens.refuse()
        if (error instanceof ClientError) throw error
        // What fails here without a name of ours is the connection.
        throw new ConnectionLostError('The connection broke off.', { cause: error })
      } finally {
        clearTimeout(timer)
        signal.removeEventListener('abort', leave)
        connection.abort()
      }
      throw new ConnectionLostError('The stream ended before it was complete.')
    },
  }
}

/** What to throw for an answer that is no stream. */
async function refusalOf(response: Response): Promise<Error> {
  const text = await response.text().catch(() => '')
  let errors: readonly GraphQLErrorLike[] = []
  try {
    errors = (JSON.parse(text) as Result).errors ?? []
  } catch {
    // Not from the API: from a proxy, for instance.
  }
  const { status } = response
  if (status === 401) return new UnauthenticatedError(errors[0]?.message ?? 'The server asks for a key or token.')
  if (status === 408 || status === 429 || (status >= 500 && errors.length === 0)) {
    return new ConnectionLostError(`The server answered with status ${status}.`)
  }
  if (errors.length > 0) return errorOf(errors)
  return errorOf([{ message: `The server answered with status ${status}, and no stream.` }])
}
