import { afterAll, beforeAll, expect, it } from 'vitest'
import { findViolations } from '../support/invariants.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// The checker itself: corrupt the data, and see it cry.

let v: Verbs
let parent: string
beforeAll(async () => {
  v = await createVerbs()
  const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, { type: 'a' }] })
  parent = id!
  await v.complete(...(await v.claim()))
  await v.complete(...(await v.claim()))
  await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
})
afterAll(() => v.close())

const open = `(select id from coppice.job where parent_id is not null and state = 'queued')`
const waiting = `(select id from coppice.job where state = 'waiting')`

const CORRUPTIONS: [string, string][] = [
  ['open_children is the number of open members', `update coppice.job set open_children = 5 where id = '$parent'`],
  ['child_count is the number of members', `update coppice.job set child_count = 5 where id = '$parent'`],
  ['no parent waits with all its children settled', `update coppice.job set state = 'completed' where id = ${open}`],
  [
    'no active job under a terminal or missing parent, unless it keeps its children',
    `delete from coppice.job where id = ${waiting}`,
  ],
  [
    "a job's versions have no gap and no double",
    `update coppice.job_event set version = 9 where job_id = '$parent' and version = 2`,
  ],
  ["a job's version is its last event's", `update coppice.job set version = version + 1 where id = '$parent'`],
  [
    'every event begins where the one before ended',
    `update coppice.job_event set "from" = 'paused' where job_id = '$parent' and version = 3`,
  ],
  ["a job's state is where its last move went", `update coppice.job set state = 'cancelled' where id = '$parent'`],
  [
    'only legal moves',
    `update coppice.job_event set "from" = 'completed', "to" = 'running' where job_id = '$parent' and version = 3`,
  ],
  ['as many wakes in the log as waves', `update coppice.job set wave = 2 where id = '$parent'`],
  [
    'a receipt for every woken parent, of its last wave',
    `delete from coppice.wake_receipt where parent_id = '$parent'`,
  ],
  [
    'no wake is given twice for one wait',
    `update coppice.job_event set "from" = 'queued' where job_id = '$parent' and version = 2`,
  ],
  [
    'no early wake: every child had settled when its parent was woken',
    `delete from coppice.job_event where kind = 'moved' and "to" = 'completed' and parent_id = '$parent'`,
  ],
  ['every job is terminal', 'select 1'],
]

it('finds nothing wrong with what the engine wrote', async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
})

it.each(CORRUPTIONS)('finds: %s', async (invariant, corruption) => {
  const client = await v.test.pool.connect()
  try {
    await client.query('begin')
    // Or the triggers for plain SQL would make an honest move of it.
    await client.query('set local session_replication_role = replica')
    await client.query(corruption.replaceAll('$parent', parent))
    const found = await findViolations(client as never, { atRest: true })
    expect(found.map((violation) => violation.invariant)).toContain(invariant)
  } finally {
    await client.query('rollback')
    client.release()
  }
})
