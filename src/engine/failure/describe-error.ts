import { inspect } from 'node:util'
import { errorChain, propertyOf } from './error-chain.ts'

/** Longest message and stack that are stored, in bytes of UTF-8. */
export const MAX_MESSAGE_BYTES = 8 * 1024
export const MAX_STACK_BYTES = 16 * 1024

/** What of an error is stored: text that PostgreSQL takes, of bounded size, the stack apart from the message. */
export interface ErrorDescription {
  message: string
  stack?: string
}

/** Describes anything that can be thrown. */
export function describeError(error: unknown): ErrorDescription {
  const chain = errorChain(error)
  const stacks = chain.map(stackOf).filter((stack) => stack !== undefined)
  const description: ErrorDescription = { message: storable(messageOf(chain), MAX_MESSAGE_BYTES) }
  if (stacks.length > 0) description.stack = storable(stacks.join('\nCaused by: '), MAX_STACK_BYTES)
  return description
}

/** Text that a `text` or `jsonb` column takes: no NUL, no half characters, at most `maxBytes` of UTF-8. */
export function storable(text: string, maxBytes: number): string {
  // Each UTF-16 unit takes a byte at least, so that nothing beyond `maxBytes` units need be looked at.
  const clean = text.slice(0, maxBytes).replaceAll('\0', '\uFFFD').toWellFormed()
  const { read } = new TextEncoder().encodeInto(clean, new Uint8Array(maxBytes))
  return clean.slice(0, read)
}

/** The error's message, and what its causes add to it: that of `fetch failed` alone would not help anybody. */
function messageOf(chain: readonly unknown[]): string {
  let message = ownMessageOf(chain[0])
  for (const cause of chain.slice(1, 5)) {
    const more = ownMessageOf(cause)
    if (!message.includes(more)) message = message === '' ? more : `${message}: ${more}`
  }
  return message === '' ? 'The error has no message.' : message
}

function ownMessageOf(error: unknown): string {
  if (typeof error === 'string') return error
  const message = propertyOf(error, 'message')
  if (typeof message === 'string') return message === '' ? nameOf(error) : message
  try {
    return inspect(error, { depth: 2, breakLength: Number.POSITIVE_INFINITY })
  } catch {
    return 'Something that cannot be read was thrown.'
  }
}

function nameOf(error: unknown): string {
  const name = propertyOf(error, 'name')
  return typeof name === 'string' && name !== 'Error' ? name : ''
}

function stackOf(error: unknown): string | undefined {
  const stack = propertyOf(error, 'stack')
  return typeof stack === 'string' && stack !== '' ? stack : undefined
}
