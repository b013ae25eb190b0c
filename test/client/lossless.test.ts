import { expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { judge, type LoggedEvent, total } from './lossless/judge.ts'
import { isLossless, runLossless } from './lossless/run-lossless.ts'

test('subscribers lose nothing while API processes are killed, restarted and cut off', {
  timeout: 240_000,
}, async () => {
  const database = await createTestDatabase()
  try {
    const report = await runLossless({ connectionString: database.connectionString, events: 3_000 })
    expect(report).toMatchObject({
      lost: 0,
      doubled: 0,
      disordered: 0,
      strange: 0,
      gaps: 0,
      differing: 0,
      failures: [],
    })
    expect(isLossless(report)).toBe(true)
    expect(report.events).toBeGreaterThan(3_000)
    expect(report.reconnects).toBeGreaterThan(10)
    expect(report.held).toBeGreaterThan(0)
    expect(report.treeJobs).toBeGreaterThan(100)
  } finally {
    await database.drop()
  }
})

/** Three jobs with four events each, by turns. */
const LOG: LoggedEvent[] = Array.from({ length: 12 }, (_, n) => ({
  id: 10 + n,
  jobId: `job ${n % 3}`,
  version: Math.floor(n / 3),
}))
const IDS = LOG.map(({ id }) => id)
const RIGHT = { lost: 0, doubled: 0, disordered: 0, strange: 0 }

test('the judge finds nothing wrong with the log itself, nor with jobs told in another order', () => {
  expect(judge(LOG, IDS)).toEqual(RIGHT)
  const byJob = [0, 1, 2].flatMap((job) => IDS.filter((_, n) => n % 3 === job))
  expect(judge(LOG, byJob)).toEqual(RIGHT)
})

test.each([
  ['one is missing', IDS.toSpliced(4, 1), { lost: 1 }],
  ['the end is missing', IDS.slice(0, -2), { lost: 2 }],
  ['nothing was told', [], { lost: 12 }],
  ['one is told again at once', IDS.toSpliced(4, 0, IDS[4]!), { doubled: 1 }],
  ['all is told again', [...IDS, ...IDS], { doubled: 12 }],
  ['two of one job are swapped', IDS.with(3, IDS[6]!).with(6, IDS[3]!), { disordered: 1 }],
  ['the first of a job is told last', [...IDS.slice(1), IDS[0]!], { disordered: 1 }],
  ['one is told that is not in the log', [...IDS, 99], { strange: 1 }],
  ['one is told in place of another', IDS.with(5, IDS[2]!), { lost: 1, doubled: 1 }],
])('the judge sees it when %s', (_what, told, wrong) => {
  expect(judge(LOG, told)).toEqual({ ...RIGHT, ...wrong })
})

test('one that is wrong spoils the whole', () => {
  expect(total([RIGHT, { ...RIGHT, lost: 2 }, { ...RIGHT, lost: 1, strange: 1 }])).toEqual({
    ...RIGHT,
    lost: 3,
    strange: 1,
  })
})
