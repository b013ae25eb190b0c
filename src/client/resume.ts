import { type BackoffOptions, backoff, pause } from './backoff.ts'
import { ConnectionLostError, errorOf, RequestError, UnauthenticatedError } from './errors.ts'
import type { Operation, Transport } from './transport.ts'
import type { EndReason } from './types.ts'

/** What a subscription tells, besides its frames. */
export interface ResumeOptions {
  transport: Transport
  backoff: BackoffOptions
  /** Told when it broke off, and when it is tried again. */
  onRetry: ((reason: Error, delayMs: number) => void) | undefined
  /** Whether the subscription has come to its end, when the server has completed it; `data` is the last frame's. */
  isOver: (data: Record<string, unknown> | undefined, resumable: boolean) => boolean
}

/**
 * Runs a subscription, and again with the last cursor whenever it breaks off, until it is over. Frames of streams with
 * cursors have `cursor` and `ended` in their one field; the variable `after` takes the cursor.
 */
export async function* resume(
  operation: Operation,
  options: ResumeOptions,
  stop: AbortSignal,
): AsyncGenerator<Record<string, unknown>> {
  const { transport, onRetry, isOver } = options
  const variables = { ...operation.variables }
  let resumable = false
  let failures = 0
  let refused = false
  let last: Record<string, unknown> | undefined
  while (!stop.aborted) {
    let reason: Error
    let delay: number
    try {
      let ended: EndReason | undefined
      for await (const { data, errors } of transport.run({ ...operation, variables: { ...variables } }, stop)) {
        if (errors !== undefined && errors.length > 0) throw errorOf(errors)
        if (!data) throw new RequestError([{ message: 'The server sent a frame without data.' }])
        failures = 0
        refused = false
        const frame = placeOf(data)
        if (frame.cursor !== undefined) {
          resumable = true
          variables.after = frame.cursor
        }
        last = data
        ended = frame.ended
        yield data
        if (ended !== undefined) break
      }
      if (stop.aborted || (ended === undefined && isOver(last, resumable))) return
      reason = new ConnectionLostError(ended === undefined ? 'The server ended the stream.' : `It ended: ${ended}.`)
      delay = ended === 'SLOW_CONSUMER' || ended === 'CURSOR_EXPIRED' ? 0 : backoff(failures++, options.backoff)
    } catch (error) {
      if (stop.aborted) return
      if (error instanceof ConnectionLostError) delay = backoff(failures++, options.backoff)
      else if (error instanceof UnauthenticatedError && !refused) {
        // Once more, with a fresh token.
        refused = true
        delay = 0
      } else throw error
      reason = error
    }
    onRetry?.(reason, delay)
    await pause(delay, stop)
  }
}

/** Where a frame of a stream leads, if it says so. */
function placeOf(data: Record<string, unknown>): { cursor?: string; ended?: EndReason } {
  const [frame] = Object.values(data)
  if (typeof frame !== 'object' || frame === null) return {}
  const { cursor, ended } = frame as { cursor?: unknown; ended?: unknown }
  return {
    ...(typeof cursor === 'string' && { cursor }),
    ...(typeof ended === 'string' && { ended: ended as EndReason }),
  }
}
