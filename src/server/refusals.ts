import { Counter, type Registry } from 'prom-client'
import type { Limit } from './limits.ts'

/** Why the API refused something, as the label of the figure. */
export type RefusalReason = Limit | 'bad_request' | 'csrf' | 'forbidden' | 'host' | 'origin' | 'unauthenticated'

const NAME = 'coppice_api_refused_total'

/** Counts what the API refuses, among an engine's figures: servers of one engine share them. */
export function countRefusals(registry: Registry): (reason: RefusalReason) => void {
  const counter =
    (registry.getSingleMetric(NAME) as Counter<'reason'> | undefined) ??
    new Counter({
      name: NAME,
      help: 'Requests, operations and connections that the API refused',
      labelNames: ['reason'] as const,
      registers: [registry],
    })
  return (reason) => counter.inc({ reason })
}
