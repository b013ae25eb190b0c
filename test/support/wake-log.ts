import type pg from 'pg'
import { isTerminal, type JobState } from '../../src/engine/states.ts'

/*
 * Proves from the event log alone, read in its order, that each wait of each parent ended in just one wake (or in the end
 * of the parent), and none before the last of its children had settled. It looks at no row of `job`: what the engine
 * believes of itself has no part in it.
 */

/** An event, as the proof needs it. */
export interface LogEvent {
  id: string
  kind: string
  job: string
  parent: string | null
  from: JobState | null
  to: JobState | null
  wave: number
  /** Of a wake; null for every other event. */
  operationId: string | null
  /** What noticed that the wake was due; null as above. */
  source: string | null
  /** The wake says of itself that children were open. */
  forced: boolean
}

export const WAKE_FAULTS = [
  'early wake',
  'wake without a wait',
  'wait ended without a wake',
  'wave skipped or repeated',
  'operation id used twice',
  'asleep for ever',
  'not ended',
  'unknown job',
  'twice created',
  'move does not begin where the last one ended',
] as const

/** What is wrong, with the event that shows it (the job's last one, for what never came). */
export interface WakeFault {
  fault: (typeof WAKE_FAULTS)[number]
  job: string
  event: string
  detail?: string
}

/** What the log says of a job so far. */
interface Node {
  parent: string | null
  state: JobState
  /** Archived or deleted: no member of its parent's child set. */
  archived: boolean
  deleted: boolean
  waves: number
  /** Waiting, or set aside from there: the wait that the next wake ends. */
  waits: boolean
  lastEvent: string
}

/** The log up to some event. */
interface Past {
  jobs: Map<string, Node>
  /** By parent, who may be created after its children, in one statement. */
  openMembers: Map<string, Set<string>>
  operations: Set<string>
  proof: WakeProof
}

type Blame = (fault: WakeFault['fault'], detail?: string) => unknown

/** Sources of wakes that pass over open children, for they were asked to. */
const MAY_FORCE = ['timeout', 'manual']

/** How much there was to prove. */
export interface WakeProof {
  events: number
  jobs: number
  waits: number
  wakes: number
  faults: WakeFault[]
}

/**
 * Follows the log event by event. Memory: a few hundred bytes a job.
 *
 * @param atRest nothing is left to do, so that every job has ended and no parent waits any more.
 */
export async function proveWakes(
  events: AsyncIterable<LogEvent> | Iterable<LogEvent>,
  { atRest }: { atRest: boolean },
): Promise<WakeProof> {
  const proof: WakeProof = { events: 0, jobs: 0, waits: 0, wakes: 0, faults: [] }
  const past: Past = { jobs: new Map(), openMembers: new Map(), operations: new Set(), proof }
  for await (const event of events) {
    proof.events++
    follow(event, past)
  }
  proof.jobs = past.jobs.size
  if (atRest) proof.faults.push(...unfinished(past))
  return proof
}

function follow(event: LogEvent, past: Past): void {
  const { jobs, proof } = past
  const blame: Blame = (fault, detail) =>
    proof.faults.push({ fault, job: event.job, event: event.id, ...(detail === undefined ? {} : { detail }) })
  const known = jobs.get(event.job)
  if (event.kind === 'progress') return
  if (event.kind === 'created') {
    if (known) {
      blame('twice created')
      return
    }
    const node: Node = {
      parent: event.parent,
      state: event.to!,
      archived: false,
      deleted: false,
      waves: 0,
      waits: event.to === 'waiting',
      lastEvent: event.id,
    }
    jobs.set(event.job, node)
    if (node.waits) proof.waits++
    countInParent(event.job, node, past)
    return
  }
  if (!known) {
    blame('unknown job')
    return
  }
  known.lastEvent = event.id
  if (event.kind === 'moved') move(event, known, past, blame)
  else if (event.kind === 'archived') known.archived = true
  else if (event.kind === 'unarchived') known.archived = false
  else if (event.kind === 'deleted') known.deleted = true
  countInParent(event.job, known, past)
}

function move(event: LogEvent, node: Node, { openMembers, operations, proof }: Past, blame: Blame): void {
  const before = node.state
  const open = [...(openMembers.get(event.job) ?? [])]
  const wake = event.operationId !== null
  if (wake) {
    proof.wakes++
    if (before !== 'waiting' || event.from !== 'waiting' || event.to !== 'queued') blame('wake without a wait', before)
    const mayBeEarly = event.forced && MAY_FORCE.includes(event.source!)
    if (open.length > 0 && !mayBeEarly) blame('early wake', `open: ${open.slice(0, 5).join(', ')}`)
    if (event.wave !== node.waves + 1) blame('wave skipped or repeated', `${event.wave} after ${node.waves}`)
    if (operations.has(event.operationId!)) blame('operation id used twice', event.operationId!)
    operations.add(event.operationId!)
    node.waves = Math.max(node.waves, event.wave)
  } else if (event.from !== before) {
    blame(
      before === 'waiting' ? 'wait ended without a wake' : 'move does not begin where the last one ended',
      `${event.from} to ${event.to} from ${before}`,
    )
  } else if (event.wave !== node.waves) {
    blame('wave skipped or repeated', `${event.wave} in wave ${node.waves}`)
  } else if (node.waits && !['waiting', 'paused', 'failed', 'cancelled'].includes(event.to!)) {
    // From PAUSED, a wait goes on; from WAITING, only a wake leads to the queue.
    blame('wait ended without a wake', `${event.from} to ${event.to}`)
  }
  node.state = event.to!
  const waits = event.to === 'waiting' || (event.to === 'paused' && node.waits)
  if (waits && !node.waits) proof.waits++
  node.waits = waits
}

/** Keeps the parent's set of open members: those neither terminal nor archived nor deleted. */
function countInParent(id: string, node: Node, { openMembers }: Past): void {
  if (node.parent === null) return
  let open = openMembers.get(node.parent)
  if (!open) {
    open = new Set()
    openMembers.set(node.parent, open)
  }
  if (isTerminal(node.state) || node.archived || node.deleted) open.delete(id)
  else open.add(id)
}

function unfinished({ jobs, openMembers }: Past): WakeFault[] {
  return [...jobs].flatMap(([job, node]): WakeFault[] => {
    if (node.deleted || node.archived || isTerminal(node.state)) return []
    const asleep = node.waits && (openMembers.get(job)?.size ?? 0) === 0
    return [{ fault: asleep ? 'asleep for ever' : 'not ended', job, event: node.lastEvent, detail: node.state }]
  })
}

/** The whole log in its order, page by page. */
export async function* readWakeLog(pool: Pick<pg.Pool, 'query'>, schema = 'coppice'): AsyncGenerator<LogEvent> {
  for (let after = '0'; ; ) {
    const { rows } = await pool.query<LogEvent>(
      `select id, kind, job_id as job, parent_id as parent, "from", "to", wave, detail ->> 'operationId' as "operationId",
         detail ->> 'source' as source, coalesce((detail ->> 'forced')::boolean, false) as forced
       from ${schema}.job_event where id > $1 order by id limit 20000`,
      [after],
    )
    yield* rows
    const last = rows.at(-1)
    if (!last) return
    after = last.id
  }
}
