import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Database } from '../../src/db/database.ts'
import { EngineError } from '../../src/engine/errors.ts'
import { type Chooser, createChooser, interleavingsOf } from './interleavings.ts'
import { openSteppedSession, type SteppedSession } from './stepped-session.ts'

/*
 * Isolation tests: two or three sessions run transactions against the real server, stepped statement by statement through
 * their interleavings. A step is one statement, commit and rollback among them. A session that waits for a lock which
 * another session at the gate holds is blocked, by the word of `pg_blocking_pids`, and goes on when the server lets it.
 */

/** What a session does: any verbs or transactions on the database that it is given. */
export type SessionScript<World> = (db: Database, world: World) => Promise<unknown>

/** A race: its sessions, what they run on, and what must hold however they meet. */
export interface Race<World> {
  /** Makes the rows of one run. */
  setup(): Promise<World>
  sessions: Record<string, SessionScript<World>>
  /** Throws if something is wrong after a run. A session may have been refused, by an {@link EngineError}. */
  check(world: World, ends: Record<string, PromiseSettledResult<unknown>>): Promise<void>
}

/** How far to go. */
export interface ExploreOptions {
  /** About how many schedules to run; default ISOLATION_LIMIT or 20. If there are not more, all are run, else a sample. */
  limit?: number
  /** Of the sample. Default ISOLATION_SEED from the environment, else one of its own each time. */
  seed?: number
}

/** What was gone through. */
export interface Exploration {
  /** Different schedules that were run. */
  schedules: number
  /** Whether these are all there are. */
  exhaustive: boolean
  /** How often a step had to wait for another session. */
  blocked: number
  /** SQLSTATE of each deadlock, serialization failure or lock timeout. */
  conflicts: string[]
  /** How often each end was met, as sessions' results in order: `ok` or the code of a refusal. */
  ends: Record<string, number>
}

/** Longest time for one step to end or to be seen blocked, in ms. */
const STEP_DEADLINE_MS = 15_000

/**
 * Runs a race through its interleavings: all of them if they are few, else as many as the limit says, chosen by a seed.
 *
 * @throws Error for the first run whose check fails, with its schedule step by step and the seed.
 */
export async function explore<World>(
  server: { connectionString: string; schema: string },
  race: Race<World>,
  options: ExploreOptions = {},
): Promise<Exploration> {
  const {
    limit = Number(process.env.ISOLATION_LIMIT ?? 20),
    seed = Number(process.env.ISOLATION_SEED ?? Math.floor(Math.random() * 2 ** 31)),
  } = options
  const stage = await openStage(server, Object.keys(race.sessions))
  const seen = new Set<string>()
  const found: Exploration = { schedules: 0, exhaustive: false, blocked: 0, conflicts: [], ends: {} }
  try {
    let chooser: Chooser = createChooser({ kind: 'in order' })
    const first = await runOnce(stage, race, chooser, seed, found)
    seen.add(first.join(' '))
    let exhaustive = interleavingsOf(first) <= limit
    if (!exhaustive) chooser = createChooser({ kind: 'sample', seed, steps: first })
    for (let run = 1; (exhaustive || run < limit) && chooser.next(); run++) {
      seen.add((await runOnce(stage, race, chooser, seed, found)).join(' '))
      if (!exhaustive || run < 2 * limit) continue
      // What comes again after a conflict, or when a lock was tried in vain, makes more than the first run showed.
      exhaustive = false
      run = 0
      chooser = createChooser({ kind: 'sample', seed, steps: first })
    }
    return { ...found, schedules: seen.size, exhaustive }
  } finally {
    await stage.close()
  }
}

/** The sessions' connections, and one that looks at them. */
interface Stage {
  readonly sessions: readonly SteppedSession[]
  readonly server: pg.Client
  /** Resolves at the next change of any session's place, or after some ms. */
  change(ms: number): Promise<void>
  close(): Promise<void>
}

async function openStage(server: { connectionString: string; schema: string }, names: string[]): Promise<Stage> {
  let wake: () => void = () => {}
  const observer = new pg.Client({ connectionString: server.connectionString })
  await observer.connect()
  const sessions = await Promise.all(names.map((name) => openSteppedSession(name, server, () => wake())))
  return {
    sessions,
    server: observer,
    change: (ms) => {
      const changed = new Promise<void>((resolve) => {
        wake = resolve
      })
      return Promise.race([changed, sleep(ms)])
    },
    async close() {
      await Promise.all([observer.end(), ...sessions.map((session) => session.close())])
    },
  }
}

/** One run; returns the names of the sessions in the order in which they were let through. */
async function runOnce<World>(
  stage: Stage,
  race: Race<World>,
  chooser: Chooser,
  seed: number,
  found: Exploration,
): Promise<string[]> {
  const world = await race.setup()
  const schedule: string[] = []
  const order: string[] = []
  const ends: Record<string, PromiseSettledResult<unknown>> = {}
  const running = stage.sessions.map(async (session) => {
    session.place = 'thinking'
    const [end] = await Promise.allSettled([race.sessions[session.name]!(session.db, world)])
    ends[session.name] = end
    session.place = 'through'
  })
  try {
    const asked = new Map<SteppedSession, Set<string>>(stage.sessions.map((session) => [session, new Set()]))
    const note = (line: string) => schedule.push(`  ${String(schedule.length + 1).padStart(2)}. ${line}`)
    for (let blocked: SteppedSession[] = []; ; ) {
      const now = await settled(stage)
      for (const session of stage.sessions) {
        for (const code of session.takeConflicts()) {
          found.conflicts.push(code)
          note(`${session.name}: ended by ${code}`)
        }
      }
      for (const session of blocked) if (!now.includes(session)) note(`${session.name}: goes on`)
      for (const session of now) {
        if (blocked.includes(session)) continue
        found.blocked++
        note(`${session.name}: waits for a lock in ${session.step}`)
      }
      blocked = now
      const atGate = stage.sessions.filter((session) => session.place === 'at the gate')
      if (atGate.length === 0) break
      // One that asks again what it has asked since another last moved (a lock that it tries) lets the others go first.
      const fresh = atGate.filter((session) => !asked.get(session)!.has(session.likeness))
      const options = fresh.length > 0 ? fresh : atGate
      const chosen = chooser.choose(options.map((option) => option.name))
      const session = options.find((option) => option.name === chosen)!
      if (isAsking(session)) asked.get(session)!.add(session.likeness)
      for (const other of stage.sessions) if (other !== session) asked.get(other)!.clear()
      note(`${session.name}: ${session.step}`)
      order.push(session.name)
      session.letThrough()
    }
    await Promise.all(running)
    for (const end of Object.values(ends)) {
      if (end.status === 'rejected' && !(end.reason instanceof EngineError)) throw end.reason
    }
    const came = stage.sessions.map(({ name }) => `${name} ${endOf(ends[name]!)}`).join(', ')
    found.ends[came] = (found.ends[came] ?? 0) + 1
    await race.check(world, ends)
    return order
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new Error(`${why}\n\nSchedule (ISOLATION_SEED=${seed}):\n${schedule.join('\n')}\n`, { cause })
  }
}

/** Commit and rollback ask nothing. */
function isAsking(session: SteppedSession): boolean {
  return session.step !== 'commit' && session.step !== 'rollback'
}

function endOf(end: PromiseSettledResult<unknown>): string {
  return end.status === 'fulfilled' ? 'ok' : (end.reason as EngineError).code
}

/** Waits until every session is at the gate, through, or blocked; returns those that are blocked. */
async function settled(stage: Stage): Promise<SteppedSession[]> {
  const deadline = performance.now() + STEP_DEADLINE_MS
  for (;;) {
    const inServer = stage.sessions.filter((session) => session.place === 'in the server')
    const thinking = stage.sessions.some((session) => session.place === 'thinking')
    if (!thinking) {
      if (inServer.length === 0) return []
      const blocked = await blockedOnes(stage, inServer)
      if (blocked.length === inServer.length && inServer.every((session) => session.place === 'in the server')) {
        return blocked
      }
    }
    if (performance.now() > deadline) {
      const where = stage.sessions.map(({ name, place, step }) => `${name} ${place} (${step})`).join(', ')
      throw new Error(`A step took longer than ${STEP_DEADLINE_MS} ms: ${where}`)
    }
    await stage.change(2)
  }
}

/**
 * Of sessions in the server, those that only another session's next step can set free: they wait for one at the gate, or
 * for one that does. (In a deadlock nobody is at the gate: that the server ends by itself.)
 */
async function blockedOnes(stage: Stage, inServer: readonly SteppedSession[]): Promise<SteppedSession[]> {
  const { rows } = await stage.server.query<{ pid: number; by: number[] }>(
    'select pid, pg_blocking_pids(pid) as by from unnest($1::int[]) pid',
    [inServer.map((session) => session.pid)],
  )
  const blockers = new Map(rows.map((row) => [row.pid, row.by]))
  const held = new Set(stage.sessions.filter((one) => one.place === 'at the gate').map((one) => one.pid))
  const blocked: SteppedSession[] = []
  for (let more = true; more; ) {
    const next = inServer.filter((one) => !held.has(one.pid) && blockers.get(one.pid)?.some((pid) => held.has(pid)))
    for (const session of next) held.add(session.pid)
    blocked.push(...next)
    more = next.length > 0
  }
  return blocked
}
