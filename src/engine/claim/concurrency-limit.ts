import { faultOfText } from '../input/text.ts'

/** How many jobs of a type may run at once, over all processes; with `key`, how many for each of its values. */
export interface ConcurrencyLimit<Payload> {
  /** 1 or more. A process goes by the limit that its own definition has. */
  limit: number
  /**
   * What the limit counts by: a text of at most {@link MAX_CONCURRENCY_KEY} characters, from the payload as the handler
   * gets it. It must depend on nothing else: it is computed once, where the job is enqueued or, if the type is not known
   * there, by the first worker that knows it. Without it all jobs of the type count together.
   */
  key?(payload: Payload): string
}

/** Longest concurrency key in characters, so that a row of its index always fits. */
export const MAX_CONCURRENCY_KEY = 200

/** What is wrong with a concurrency key; undefined if nothing. */
export function faultOfConcurrencyKey(key: unknown): string | undefined {
  return faultOfText(key, { characters: MAX_CONCURRENCY_KEY, mayBeEmpty: true })
}
