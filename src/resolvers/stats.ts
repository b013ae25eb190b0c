import type { WakeSource } from '../engine/job.ts'
import type { Stats, WakeStats } from '../engine/stats/stats.ts'
import type { Context } from './context.ts'
import { Stream } from './stream.ts'

/** The installation in numbers. */
export function readStats(_root: unknown, _args: unknown, { engine }: Context): Promise<Stats> {
  return engine.stats()
}

/** The same, again and again. */
export function watchStats(_root: unknown, args: { interval: number }, context: Context): Stream<Stats> {
  return new Stream(context, (stop) => figures(context.engine.watchStats({ interval: args.interval, signal: stop })))
}

async function* figures(stats: AsyncIterable<Stats>): AsyncGenerator<Stats> {
  yield* stats
}

/** Wakes delivered, by one source or by all. */
export function emittedWakes({ emitted }: WakeStats, { source }: { source?: WakeSource | null | undefined }): bigint {
  if (source != null) return emitted[source]
  return Object.values(emitted).reduce((sum, count) => sum + count, 0n)
}
