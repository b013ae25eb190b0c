import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { pino } from 'pino'
import { createEngine } from '../../../src/index.ts'
import { compileProgram } from '../../support/compiled.ts'
import { until } from '../../support/until.ts'
import { startCuttableProxy } from '../cuttable-proxy.ts'
import { startApiFleet } from './api-fleet.ts'
import { differingTrees } from './fresh-trees.ts'
import { heldTransactions, holdTransactions } from './held-transactions.ts'
import { judge, type LoggedEvent, total, type Verdict } from './judge.ts'
import { type EventSubscriber, followEvents, followTree, type Tally, type TreeSubscriber } from './subscribers.ts'
import { startWriters } from './writers.ts'

/*
 * Writers enqueue, run and steer jobs, with one transaction in a hundred held open; subscribers follow through
 * `coppice/client` on API processes that are killed, restarted and cut off at random. In the end each has been told the
 * event log, once and in order, and each watched tree is as a fresh read shows it.
 */

export interface LosslessOptions {
  /** A database with nothing in it but the schema. */
  connectionString: string
  /** Goes on until there are so many events in the log, and each kind of disturbance has come at least once. */
  events: number
  log?: (line: string) => void
}

export interface LosslessReport extends Verdict, Tally {
  events: number
  seconds: number
  eventsPerSecond: number
  writers: number
  subscribers: number
  /** Transactions held open. */
  held: number
  kills: number
  restarts: number
  /** Connections cut. */
  cuts: number
  trees: number
  /** Jobs in them at the end. */
  treeJobs: number
  /** Trees that are not as a fresh read shows them. */
  differing: number
  /** Subscriptions that ended, with an error or without. */
  failures: string[]
}

const PROGRAM = fileURLToPath(new URL('../../support/programs/lossless-writers.ts', import.meta.url))
const WRITERS = 8
const SUBSCRIBERS = 20
const TREES = 4
const APIS = 2
/** For the subscribers, once the writers are done. */
const CATCH_UP_MS = 60_000
const SAY_EVERY_MS = 10_000

/** Whether anything is wrong. */
export function isLossless(report: LosslessReport): boolean {
  const { lost, doubled, disordered, strange, gaps, differing, failures } = report
  return lost + doubled + disordered + strange + gaps + differing + failures.length === 0
}

export async function runLossless({ connectionString, events: wanted, log = () => {} }: LosslessOptions) {
  const pool = new pg.Pool({ connectionString, max: 3 })
  const logger = pino({ level: 'error' }, pino.destination(2))
  const engine = createEngine({ connectionString, worker: false, logger })
  const ending = new AbortController()
  // Each subscription listens to it.
  setMaxListeners(0, ending.signal)
  const undo: (() => unknown)[] = [() => pool.end(), () => engine.stop({ grace: 0 })]
  const did = { kills: 0, restarts: 0, cuts: 0 }
  const tally: Tally = { reconnects: 0, gaps: 0 }
  try {
    const program = await compileProgram(PROGRAM)
    undo.push(() => program.remove())
    const apis = await startApiFleet({ cli: program.cli, connectionString }, APIS)
    undo.push(() => apis.stop())
    const proxy = await startCuttableProxy(apis.ports)
    undo.push(() => proxy.close())
    undo.push(() => ending.abort())

    const roots = await plantTrees()
    const options = { url: `http://127.0.0.1:${proxy.port}/graphql`, signal: ending.signal, tally }
    const events = Array.from({ length: SUBSCRIBERS - TREES }, (_, n) => followEvents(n, options))
    const trees = roots.map((root, n) => followTree(n, root, options))
    await until(() => events.every(({ begun }) => begun) && trees.every(({ tree }) => tree.caughtUp), {
      timeout: CATCH_UP_MS,
      what: 'every first frame',
    })
    const planted = await lastEvent()
    await holdTransactions(pool)
    const started = performance.now()
    const writers = await startWriters(program.file, connectionString, WRITERS, roots)
    undo.push(() => writers.kill())
    const enough = new AbortController()
    const disturbing = disturb(enough.signal)
    let said = started
    for (let size = 0; size < wanted || Object.values(did).includes(0); size = await logSize(planted)) {
      if (performance.now() - said > SAY_EVERY_MS) {
        said = performance.now()
        log(`${size} events, ${JSON.stringify({ ...did, ...tally })}`)
      }
      await sleep(200)
    }
    await writers.finish()
    const seconds = (performance.now() - started) / 1000
    enough.abort()
    await disturbing
    await apis.complete()

    // The last event of all, which every filter lets through.
    await engine.enqueue({ type: 'leaf' })
    const verdict = await judgeAll(events, planted)
    const compared = await differingTrees(options.url, trees, CATCH_UP_MS)
    const size = await logSize(planted)
    return {
      events: size,
      seconds: Math.round(seconds),
      eventsPerSecond: Math.round(size / seconds),
      writers: WRITERS,
      subscribers: SUBSCRIBERS,
      held: await heldTransactions(pool),
      ...did,
      ...tally,
      ...verdict,
      ...compared,
      failures: failuresOf([...events, ...trees]),
    } satisfies LosslessReport

    async function disturb(signal: AbortSignal): Promise<void> {
      // One of each kind to begin with.
      const first = [0, 0.7, 0.9]
      while (!signal.aborted) {
        await sleep(300 + Math.random() * 900)
        const dice = first.shift() ?? Math.random()
        if (dice < 0.6) did.cuts += proxy.cut(Math.random())
        else if (dice < 0.8) did.kills += Number(apis.killOne())
        else did.restarts += Number(apis.restartOne())
      }
    }
  } finally {
    for (const step of undo.reverse()) await step()
  }

  /** Trees that stay open, since nobody runs their first child. */
  async function plantTrees(): Promise<string[]> {
    const tree = { type: 'planted', children: [{ type: 'planted' }] }
    return (await engine.enqueueMany(Array.from({ length: TREES }, () => tree))).map(({ id }) => id)
  }

  async function lastEvent(): Promise<number> {
    return (await pool.query('select max(id)::int as id from coppice.job_event')).rows[0].id
  }

  async function logSize(after: number): Promise<number> {
    return (await pool.query('select count(*)::int as n from coppice.job_event where id > $1', [after])).rows[0].n
  }

  async function logged(where: string, after: number): Promise<LoggedEvent[]> {
    const { rows } = await pool.query(
      `select id::int, job_id as "jobId", version from coppice.job_event where ${where} and id > $1 order by id`,
      [after],
    )
    return rows
  }

  /** Waits until each has been told as much as the log has for it, and compares what. */
  async function judgeAll(subscribers: readonly EventSubscriber[], planted: number): Promise<Verdict> {
    const verdicts: Verdict[] = []
    for (const { name, where, told } of subscribers) {
      const expected = await logged(where, planted)
      await until(() => told.length >= expected.length, { timeout: CATCH_UP_MS }).catch(() => {})
      const verdict = judge(expected, told)
      if (Object.values(verdict).some((n) => n > 0)) log(`${name}, where ${where}: ${JSON.stringify(verdict)}`)
      verdicts.push(verdict)
    }
    return total(verdicts)
  }
}

function failuresOf(subscribers: readonly (EventSubscriber | TreeSubscriber)[]): string[] {
  return subscribers
    .filter(({ failure }) => failure !== undefined)
    .map(({ name, failure }) => `${name}: ${String(failure)}`)
}
