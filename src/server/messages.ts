import { validateMessage } from 'graphql-ws'

/** What a message is, as far as it can be told. */
export interface MessageOf {
  readonly type?: unknown
  /** Only if it is a text: anything might come in its place. */
  readonly id?: string
  /**
   * What is wrong with a `subscribe` message that has an id, but no query or the wrong kind of variables: it is answered
   * with an error of its own, where graphql-ws would close the socket and all other operations with it.
   */
  readonly malformed?: string
}

/** Messages that only a server sends. */
const OF_SERVERS: readonly unknown[] = ['connection_ack', 'next', 'error']

/** Whether a client has no business to send this; graphql-ws would take it for a fault of its own. */
export function isOfServers({ type }: MessageOf): boolean {
  return OF_SERVERS.includes(type)
}

/** Reads what is needed to decide on a message's turn. What is no message at all is graphql-ws's to refuse. */
export function readMessage(text: string): MessageOf {
  let message: unknown
  try {
    message = JSON.parse(text)
    return validateMessage(message)
  } catch (error) {
    if (typeof message !== 'object' || message === null) return {}
    const { type, id } = message as { type?: unknown; id?: unknown }
    if (typeof id !== 'string') return { type }
    const why = error instanceof Error ? error.message : 'The message is malformed.'
    return { type, id, ...(type === 'subscribe' && id !== '' && { malformed: why }) }
  }
}
