/**
 * A counter of a job's row with something added or taken away, as SQL that cannot overflow. Set by hand it may hold any
 * integer: the sum is then the nearest one there is, and is put right like any other wrong counter.
 */
export function added(counter: string, by: string): string {
  return `least(greatest(${counter}::bigint + (${by}), -2147483648), 2147483647)::int`
}
