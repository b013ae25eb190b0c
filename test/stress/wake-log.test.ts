import { beforeAll, describe, expect, it } from 'vitest'
import { deleteJob } from '../../src/engine/cascade.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { createVerbs } from '../support/verbs.ts'
import { type LogEvent, proveWakes, readWakeLog, type WAKE_FAULTS } from '../support/wake-log.ts'

// The proof itself: a log that the engine wrote is sound, and corrupted in any way that matters, it is not.

const by = { actor: 'test' }
const failed = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const

let log: LogEvent[]
beforeAll(async () => {
  const v = await createVerbs()
  try {
    // Two waves, the second with a tree in it; a wake withdrawn for a retried child; a wait set aside; a deleted child.
    const [root] = await v.enqueue({ type: 'p' })
    await v.spawn(await v.hold(root!), [{ type: 'a' }, { type: 'b' }])
    const [one, two] = await v.claim()
    await v.complete(one!)
    await v.end(two!, failed)
    await retryJob(v.db, two!.id, by)
    await v.complete(...(await v.claim()))
    await v.spawn(await v.hold(root!), [{ type: 'p', children: [{ type: 'a' }, { type: 'b' }] }, { type: 'c' }])
    await pauseJob(v.db, root!, by)
    const [first, ...others] = await v.claim()
    await v.complete(...others)
    await deleteJob(v.db, first!.id, by)
    await resumeJob(v.db, root!, by)
    for (let jobs = await v.claim(); jobs.length > 0; jobs = await v.claim()) await v.complete(...jobs)
    log = []
    for await (const event of readWakeLog(v.test.pool)) log.push(event)
  } finally {
    await v.close()
  }
})

const prove = (events: LogEvent[], atRest = true) => proveWakes(events, { atRest })
const isWake = (event: LogEvent) => event.operationId !== null
const wakes = () => log.filter(isWake)
const without = (event: LogEvent) => log.filter((other) => other !== event)
const inserted = (event: LogEvent, at: number) => [...log.slice(0, at), event, ...log.slice(at)]
const faultsOf = async (events: LogEvent[], atRest = true) =>
  (await prove(events, atRest)).faults.map((fault) => fault.fault)

/** The ends of the children that a wake waited for, latest first. */
const endsBefore = (wake: LogEvent) =>
  log
    .slice(0, log.indexOf(wake))
    .filter((event) => event.parent === wake.job && ['completed', 'failed', 'cancelled'].includes(event.to ?? ''))
    .reverse()

it('finds nothing wrong with what the engine wrote', async () => {
  const proof = await prove(log)
  expect(proof.faults).toEqual([])
  // Withdrawn, delivered again, second wave; and the tree in it.
  expect(proof).toMatchObject({ wakes: 4, waits: 4 })
})

describe('of every wake in it', () => {
  const corruptions: [string, (typeof WAKE_FAULTS)[number], (wake: LogEvent) => LogEvent[]][] = [
    ['a wake that is missing', 'wait ended without a wake', without],
    ['a wake written twice', 'wake without a wait', (wake) => inserted({ ...wake, id: 'x' }, log.indexOf(wake) + 1)],
    [
      'a second wake of its own, later',
      'wake without a wait',
      (wake) => inserted({ ...wake, id: 'x', operationId: 'other', wave: wake.wave + 1 }, log.indexOf(wake) + 1),
    ],
    [
      "a wake moved before its last child's end",
      'early wake',
      (wake) => {
        const rest = without(wake)
        const at = rest.indexOf(endsBefore(wake)[0]!)
        return [...rest.slice(0, at), wake, ...rest.slice(at)]
      },
    ],
    ["a child's end that is missing", 'early wake', (wake) => without(endsBefore(wake)[0]!)],
    [
      'a member that is open',
      'early wake',
      (wake) =>
        inserted(
          { ...wake, kind: 'created', job: 'new', parent: wake.job, from: null, operationId: null },
          log.indexOf(wake),
        ),
    ],
    [
      "another child set's wave",
      'wave skipped or repeated',
      (wake) => log.map((event) => (event === wake ? { ...wake, wave: wake.wave + 1 } : event)),
    ],
    [
      "another wake's operation id",
      'operation id used twice',
      (wake) => {
        const other = wakes().find((one) => one !== wake)!
        return log.map((event) => (event === wake ? { ...wake, operationId: other.operationId } : event))
      },
    ],
    [
      'a wake after which the log of the parent ends',
      'not ended',
      (wake) => log.filter((event) => event.job !== wake.job || log.indexOf(event) <= log.indexOf(wake)),
    ],
    [
      'a wait at which the log of the parent ends, its children settled',
      'asleep for ever',
      (wake) => log.filter((event) => event.job !== wake.job || log.indexOf(event) < log.indexOf(wake)),
    ],
    [
      'a plain move in place of the wake',
      'wait ended without a wake',
      (wake) => log.map((event) => (event === wake ? { ...wake, operationId: null, wave: wake.wave - 1 } : event)),
    ],
  ]

  it.each(corruptions)('cries out at %s', async (_, fault, corrupt) => {
    for (const wake of wakes()) {
      if (fault === 'early wake' && endsBefore(wake).length === 0) continue
      expect(await faultsOf(corrupt(wake)), `wake ${wake.id}`).toContain(fault)
    }
  })
})

it('lets a forced wake pass over open children, and a deleted or archived child be no member', async () => {
  const wake = wakes()[0]!
  const open: LogEvent = {
    ...wake,
    id: 'x',
    kind: 'created',
    job: 'n',
    parent: wake.job,
    from: null,
    operationId: null,
  }
  const withOpen = inserted(open, log.indexOf(wake))
  expect(await faultsOf(withOpen, false)).toContain('early wake')
  const forcedBy = (source: string) =>
    withOpen.map((event) => (isWake(event) ? { ...event, forced: true, source } : event))
  expect(await faultsOf(forcedBy('manual'), false)).toEqual([])
  expect(await faultsOf(forcedBy('timeout'), false)).toEqual([])
  // Others say so only where something is wrong.
  expect(await faultsOf(forcedBy('edge'), false)).toContain('early wake')
  for (const kind of ['deleted', 'archived']) {
    const gone = [...withOpen]
    gone.splice(withOpen.indexOf(open) + 1, 0, { ...open, kind, from: 'queued', to: 'queued' })
    expect(await faultsOf(gone)).toEqual([])
  }
})

it('cries out at a log that is not one', async () => {
  const created = log.find((event) => event.kind === 'created')!
  expect(await faultsOf(inserted({ ...created, id: 'x' }, 1))).toContain('twice created')
  expect(await faultsOf(without(created))).toContain('unknown job')
  const claim = log.find((event) => event.to === 'running')!
  expect(await faultsOf(without(claim))).toContain('move does not begin where the last one ended')
})

it('knows waits that go on from those that are over', async () => {
  const job = {
    kind: 'moved',
    job: 'p',
    parent: null,
    wave: 0,
    operationId: null,
    source: null,
    forced: false,
  } as const
  const waits: LogEvent = { ...job, id: '1', kind: 'created', from: null, to: 'waiting' }
  const paused: LogEvent = { ...job, id: '2', from: 'waiting', to: 'paused' }
  const toQueue: LogEvent = { ...job, id: '3', from: 'paused', to: 'queued' }
  const resumed: LogEvent = { ...job, id: '3', from: 'paused', to: 'waiting' }
  const failedInTheEnd: LogEvent = { ...job, id: '4', from: 'waiting', to: 'failed' }
  expect(await faultsOf([waits, paused], false)).toEqual([])
  expect(await faultsOf([waits, paused])).toEqual(['asleep for ever'])
  expect(await faultsOf([waits, paused, toQueue], false)).toEqual(['wait ended without a wake'])
  expect(await prove([waits, paused, resumed, failedInTheEnd])).toMatchObject({ faults: [], waits: 1 })
})
