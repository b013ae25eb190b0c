import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import type { ClaimedJob } from '../engine/claim/claimed-job.ts'
import type { AbortCode } from '../engine/context/context.ts'
import type { AnyDefinition, JobDefinition } from '../engine/definition/define-job.ts'
import { createJobRegistry } from '../engine/definition/job-registry.ts'
import { parseJsonOrThrow, type SchemaInput, type SchemaSlot } from '../engine/definition/standard-schema.ts'
import { ValidationError } from '../engine/errors.ts'
import { newJobId, parseJobId } from '../engine/ids.ts'
import type { Json } from '../engine/job.ts'
import { toJsonText } from '../engine/json.ts'
import type { Phase } from '../engine/states.ts'
import { LazyAbort } from '../engine/worker/abort.ts'
import type { AttemptEnd } from '../engine/worker/attempt-end.ts'
import { runHandler } from '../engine/worker/run-handler.ts'
import type { GivenChild } from './given-child.ts'
import { memoryStore } from './memory-store.ts'
import { type LoggedLine, type PhaseOutcome, type PhaseRun, spawnedChild } from './phase-run.ts'

/** What a phase finds. Everything has a default. */
export interface PhaseInput<P extends SchemaSlot = SchemaSlot, S extends SchemaSlot = SchemaSlot> {
  /** As it would be enqueued. */
  payload?: SchemaInput<P, unknown>
  /** What an earlier attempt or phase saved. */
  saved?: SchemaInput<S, unknown>
  /** For `ctx.children` and `ctx.childCounts`; a spawn with a key of theirs finds them. */
  children?: readonly GivenChild[]
  metadata?: Json
  key?: string
  /** `JB_…` or bare. */
  parentId?: string
  /** Default 0 in ingest, 1 in aggregate. */
  wave?: number
  /** Default 1 more than the retries spent. */
  attempt?: number
  retryCount?: number
  /** Default that of the type. */
  maxRetries?: number
  /** Aborts `ctx.signal`; its reason's `code`, if it is one of ours, says why (default CANCELLED). */
  signal?: AbortSignal
  /** Types that the phase spawns: with them, payloads are checked as at the door, and their defaults are seen. */
  jobs?: readonly AnyDefinition[]
}

const ABORT_CODES: readonly AbortCode[] = ['CANCELLED', 'TIMEOUT', 'LEASE_LOST', 'SHUTDOWN']

/**
 * Runs the handler of one phase with no database: `ingest` (or `run`) or `aggregate`. It runs as a worker would run it:
 * schemas check what goes in and out, and what it throws is classified. Nothing limits its time.
 *
 * @param phase for a job in one phase: `ingest`; `aggregate` if it was enqueued with children.
 * @throws {ValidationError} when the type has no handler for the phase, or something given has no JSON form.
 * @example
 * const { outcome, spawned } = await runPhase(digestFolderJob, 'ingest', { payload: { path: '/etc' } })
 */
export async function runPhase<P extends SchemaSlot, R extends SchemaSlot, S extends SchemaSlot>(
  definition: JobDefinition<P, R, S>,
  phase: Phase,
  given: PhaseInput<P, S> = {},
): Promise<PhaseRun<R, S>> {
  const job = jobOf(definition, phase, given)
  const store = memoryStore(given.children ?? [], job.spawnWave)
  const logs: LoggedLine[] = []
  const logger = pino(
    { level: 'trace', base: null, timestamp: false },
    { write: (line: string) => void logs.push(JSON.parse(line) as LoggedLine) },
  )
  const abort = new LazyAbort()
  const release = follow(given.signal, abort)
  const end = await runHandler({
    services: {
      store,
      known: createJobRegistry([definition, ...(given.jobs ?? [])]),
      outages: { persist: (fn) => fn() },
      logger,
      onWritten: () => {},
      onSpawned: () => {},
    },
    job,
    definition,
    abort,
    isOver: () => false,
    onStale: () => {},
  }).finally(release)
  const collected = end.outcome?.kind === 'waiting' ? end.outcome.children : []
  const saved = store.saved === undefined ? job.checkpoint : (JSON.parse(store.saved) as Json)
  const record = {
    spawned: [...store.streamed, ...collected].map(spawnedChild),
    progress: [...store.progressed],
    // One that its schema refuses has failed the phase already.
    saved: saved === null ? null : await parseJsonOrThrow(definition.checkpoint, saved, 'saved').catch(() => saved),
    logs,
  }
  return { ...(await outcomeOf(definition, end, abort)), ...record } as PhaseRun<R, S>
}

async function outcomeOf(
  definition: AnyDefinition,
  { outcome }: AttemptEnd,
  abort: LazyAbort,
): Promise<PhaseOutcome<unknown>> {
  const putBack = outcome === null || (outcome.kind === 'requeue' && outcome.reason === 'shutdown')
  // At shutdown a result that comes all the same counts; after any other abortion nothing does.
  const ignored = abort.aborted && abort.signal.reason.code !== 'SHUTDOWN'
  if (putBack || ignored) return { outcome: 'aborted' }
  switch (outcome.kind) {
    case 'completed':
      return { outcome: 'completed', result: await parseJsonOrThrow(definition.result, outcome.result, 'result') }
    case 'waiting': {
      if (outcome.result === undefined) return { outcome: 'waiting' }
      return { outcome: 'waiting', result: await parseJsonOrThrow(definition.result, outcome.result, 'result') }
    }
    case 'retry':
      return { outcome: 'retry', error: outcome.error, delayMs: outcome.delayMs }
    case 'failed':
      return { outcome: 'failed', error: outcome.error }
    case 'requeue':
      return { outcome: 'snoozed', delayMs: outcome.delayMs }
  }
}

/** Aborts when a signal does. Returns what ends that. */
function follow(signal: AbortSignal | undefined, abort: LazyAbort): () => void {
  if (!signal) return () => {}
  const onAbort = () => {
    const code = (signal.reason as { code?: unknown } | undefined)?.code as AbortCode
    abort.abort(ABORT_CODES.includes(code) ? code : 'CANCELLED')
  }
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  return () => signal.removeEventListener('abort', onAbort)
}

/** The job as a worker would have claimed it. */
function jobOf(definition: AnyDefinition, phase: Phase, given: PhaseInput): ClaimedJob {
  const { run, aggregate } = definition.handlers
  if (phase === 'aggregate' && !run && !aggregate) {
    throw ValidationError.of('phase', `${definition.type} has no aggregate`)
  }
  const json = (name: string, value: unknown): Json => {
    const stored = toJsonText(value, [name])
    if ('issue' in stored) throw new ValidationError([stored.issue])
    return JSON.parse(stored.text) as Json
  }
  const id = newJobId()
  const { wave = phase === 'aggregate' ? 1 : 0, retryCount = 0, children = [] } = given
  const parentId = given.parentId === undefined ? null : parseJobId(given.parentId)
  return {
    id,
    treeId: parentId ?? id,
    parentId,
    depth: parentId === null ? 0 : 1,
    type: definition.type,
    queue: 'default',
    key: given.key ?? null,
    payload: json('payload', given.payload ?? {}),
    result: null,
    metadata: json('metadata', given.metadata ?? {}),
    phase,
    wave,
    spawnWave: wave,
    checkpoint: given.saved === undefined ? null : json('saved', given.saved),
    attempt: given.attempt ?? retryCount + 1,
    claimToken: randomUUID(),
    retryCount,
    maxRetries: given.maxRetries ?? definition.settings.maxRetries ?? 2,
    childCount: children.length,
    timeouts: {},
    // So that `run` runs in AGGREGATE, as it does for a job that was enqueued with its children.
    skippedIngest: phase === 'aggregate' && run !== undefined,
  }
}
