import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Api, startApi } from './api.ts'
import { ARGS, argsArbitrary, type Connection, check, DECLARED, PAGE } from './connection-model.ts'

// Every filter in every order, and the pages of assignees, against a plain list.

let api: Api
beforeAll(async () => {
  api = await startApi({ start: false })
})
afterAll(() => api.stop())

const STATES = ['queued', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled'] as const
const CODES = ['NETWORK', 'PARSE'] as const
const uuid = (n: number) => `01890000-0000-7000-8000-${String(n).padStart(12, '0')}`
const PARENTS = [uuid(901), uuid(902)]
const WORKER = uuid(999)
const WORDS = ['alpha', 'beta']

interface Row {
  id: string
  parent: string | null
  type: string
  queue: string
  state: (typeof STATES)[number]
  archived: boolean
  assignee: string | null
  worker: string | null
  code: string | null
  error: string | null
  key: string | null
  label: string | null
  created: number
  updated: number
}

const rowsArbitrary = fc
  .array(
    fc.record({
      parent: fc.constantFrom(null, ...PARENTS),
      type: fc.constantFrom('a', 'b'),
      queue: fc.constantFrom('x', 'y'),
      state: fc.constantFrom(...STATES),
      archived: fc.boolean(),
      assignee: fc.constantFrom(null, 'ann', 'bob'),
      worker: fc.constantFrom(null, WORKER),
      code: fc.constantFrom(null, ...CODES),
      error: fc.constantFrom(null, ...WORDS),
      key: fc.constantFrom(null, 'k', 'l'),
      label: fc.constantFrom(null, 'red', 'blue'),
      created: fc.integer({ min: 0, max: 5 }),
      updated: fc.integer({ min: 0, max: 5 }),
    }),
    { maxLength: 25 },
  )
  .map((rows) => {
    const taken = new Set<string>()
    return rows.map((row, index): Row => {
      const key = row.key === null ? null : `${row.parent}/${row.type}/${row.key}`
      const free = key !== null && !taken.has(key)
      if (free) taken.add(key)
      // Nothing has changed before it was enqueued.
      const updated = Math.max(row.updated, row.created)
      return { ...row, updated, id: uuid(index + 1), key: free ? row.key : null }
    })
  })

const some = <T>(...values: T[]) => fc.option(fc.subarray(values), { nil: undefined })
const one = <T>(...values: T[]) => fc.option(fc.constantFrom(...values), { nil: undefined })

const NARROW = {
  ids: { given: [uuid(1), uuid(2), uuid(3)], holds: (row: Row) => row.id <= uuid(3) },
  treeId: { given: PARENTS[0], holds: (row: Row) => row.parent === PARENTS[0] },
  parentId: { given: PARENTS[1], holds: (row: Row) => row.parent === PARENTS[1] },
  assigneeIds: { given: ['AS_ann', 'bob'], holds: (row: Row) => row.assignee !== null },
  workerIds: { given: [`WK_${WORKER}`], holds: (row: Row) => row.worker !== null && row.state === 'running' },
  errorCodes: { given: ['NETWORK'], holds: (row: Row) => row.code === 'NETWORK' },
  error: { given: 'LPH', holds: (row: Row) => row.error === 'alpha' && row.code !== null },
  key: { given: 'k', holds: (row: Row) => row.key === 'k' },
  metadata: { given: { label: 'red' }, holds: (row: Row) => row.label === 'red' },
  search: { given: 'bet', holds: (row: Row) => row.error === 'beta' },
}

const filterArbitrary = fc.record({
  states: some(...STATES),
  types: some('a', 'b', 'c'),
  queues: some('x', 'y'),
  roots: one(true, false),
  archived: one(true, false, null),
  createdAfter: one(1, 2),
  createdBefore: one(3, 5),
  // One or two of those that narrow a list, so that something is left.
  narrow: fc.oneof(
    fc.constant<(keyof typeof NARROW)[]>([]),
    fc.subarray(Object.keys(NARROW) as (keyof typeof NARROW)[], { minLength: 1, maxLength: 2 }),
  ),
})
type Filter = typeof filterArbitrary extends fc.Arbitrary<infer T> ? T : never

const instant = (n: number) => `2026-06-01T00:00:00.00${n}Z`

function matches(row: Row, filter: Filter): boolean {
  const { states, types, queues, roots, archived = false, createdAfter, createdBefore, narrow } = filter
  return (
    (!states || states.includes(row.state)) &&
    (!types || types.includes(row.type)) &&
    (!queues || queues.includes(row.queue)) &&
    (roots === undefined || (row.parent === null) === roots) &&
    (archived === null || row.archived === archived) &&
    (createdAfter === undefined || row.created >= createdAfter) &&
    (createdBefore === undefined || row.created < createdBefore) &&
    narrow.every((name) => NARROW[name].holds(row))
  )
}

function variablesOf({ narrow, states, createdAfter, createdBefore, ...rest }: Filter) {
  return {
    ...rest,
    ...(states && { states: states.map((state) => state.toUpperCase()) }),
    ...(createdAfter !== undefined && { createdAfter: instant(createdAfter) }),
    ...(createdBefore !== undefined && { createdBefore: instant(createdBefore) }),
    ...Object.fromEntries(narrow.map((name) => [name, NARROW[name].given])),
  }
}

/** Rows whose errors have no code are found by no text of an error: what the engine writes has both. */
async function fill(rows: readonly Row[]): Promise<void> {
  await api.test.pool.query('truncate coppice.job, coppice.job_event cascade')
  await api.test.pool.query(
    `insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type, queue, state, archived_at, assignee_id,
      worker_id, error_code, error, key, metadata, created_at, updated_at)
     select id, coalesce(parent, id), parent, case when parent is not null then 1 end, (parent is not null)::int, type, queue,
       state, case when archived then now() end, assignee, worker, code, error, key,
       case when label is null then '{}' else jsonb_build_object('label', label) end,
       timestamptz '2026-06-01Z' + created * interval '1 millisecond',
       timestamptz '2026-06-01Z' + updated * interval '1 millisecond'
     from jsonb_to_recordset($1) as r(id uuid, parent uuid, type text, queue text, state text, archived boolean,
       assignee text, worker uuid, code text, error text, key text, label text, created int, updated int)`,
    [JSON.stringify(rows)],
  )
}

test('jobs: every filter, order and page is what slicing the list gives', { timeout: 180_000 }, async () => {
  const request = fc.record({
    rows: rowsArbitrary,
    filter: filterArbitrary,
    args: argsArbitrary,
    field: fc.constantFrom('CREATED_AT', 'UPDATED_AT'),
    direction: fc.constantFrom('ASC', 'DESC'),
  })
  await fc.assert(
    fc.asyncProperty(request, async ({ rows, filter, args, field, direction }) => {
      await fill(rows)
      const byId = filter.narrow.length > 0
      const place = (row: Row) => (field === 'UPDATED_AT' ? row.updated : byId ? 0 : row.created)
      const list = rows
        .filter((row) => matches(row, filter))
        .sort((a, b) => place(a) - place(b) || (a.id < b.id ? -1 : 1))
        .map((row) => `JB_${row.id}`)
      if (direction === 'DESC') list.reverse()
      await check(list, args, async (variables) => {
        const data = await api.ask(
          `query ($filter: JobFilter, $orderBy: JobOrder, ${DECLARED}) {
            jobs(filter: $filter, orderBy: $orderBy, ${ARGS}) { ${PAGE} } }`,
          { orderBy: { field, direction }, filter: variablesOf(filter), ...variables },
        )
        return data.jobs
      })
    }),
    { numRuns: 200 },
  )
})

test('children of several parents at once: every filter is what filtering the list gives', async () => {
  await fc.assert(
    fc.asyncProperty(rowsArbitrary, filterArbitrary, fc.boolean(), async (rows, given, updated) => {
      await fill(rows)
      const filter = { ...given, narrow: given.narrow.filter((name) => name !== 'treeId' && name !== 'parentId') }
      for (const parent of PARENTS) {
        await api.test.pool.query(
          `insert into coppice.job (id, tree_id, type, state) values ($1, $1, 'p', 'waiting')`,
          [parent],
        )
      }
      const { nodes } = await api.ask(
        `query ($ids: [ID!]!, $filter: JobFilter, $orderBy: JobOrder) {
          nodes(ids: $ids) { ... on Job { children(filter: $filter, orderBy: $orderBy, first: 100) { nodes { id } } } } }`,
        {
          ids: PARENTS.map((id) => `JB_${id}`),
          filter: variablesOf(filter),
          orderBy: { field: updated ? 'UPDATED_AT' : 'CREATED_AT', direction: 'ASC' },
        },
      )
      const place = (row: Row) => (updated ? row.updated : 0)
      const expected = PARENTS.map((parent) =>
        rows
          .filter((row) => row.parent === parent && matches(row, filter))
          .sort((a, b) => place(a) - place(b) || (a.id < b.id ? -1 : 1))
          .map(({ id }) => ({ id: `JB_${id}` })),
      )
      expect(nodes.map((node: { children: Connection }) => node.children.nodes)).toEqual(expected)
    }),
    { numRuns: 40 },
  )
})

test('assignees: statuses and pages are what slicing the list gives', async () => {
  const STATUSES = ['active', 'paused', 'stopped', 'pending_approval'] as const
  const request = fc.record({
    // Ids in the order of the database's collation, which is that of their bytes.
    rows: fc.array(fc.constantFrom(...STATUSES), { maxLength: 12 }),
    statuses: some(...STATUSES),
    args: argsArbitrary,
  })
  await fc.assert(
    fc.asyncProperty(request, async ({ rows, statuses, args }) => {
      await api.test.pool.query('delete from coppice.assignee')
      const named = rows.map((status, n) => ({ status, id: `user-${String(n).padStart(2, '0')}` }))
      for (const { id, status } of named) {
        await api.test.pool.query('insert into coppice.assignee (id, status) values ($1, $2)', [id, status])
      }
      const list = named.filter(({ status }) => !statuses || statuses.includes(status)).map(({ id }) => `AS_${id}`)
      await check(list, args, async (variables) => {
        const given = statuses && { statuses: statuses.map((status) => status.toUpperCase()) }
        const data = await api.ask(
          `query ($statuses: [AssigneeStatus!], ${DECLARED}) { assignees(statuses: $statuses, ${ARGS}) { ${PAGE} } }`,
          { ...given, ...variables },
        )
        return data.assignees
      })
    }),
    { numRuns: 50 },
  )
})

test('pages go on while jobs are enqueued: what was there comes once, in order, whatever is added', async () => {
  await api.test.pool.query('truncate coppice.job, coppice.job_event cascade')
  for (const [direction, argument] of [
    ['DESC', 'first'],
    ['ASC', 'first'],
    ['DESC', 'last'],
    ['ASC', 'last'],
  ] as const) {
    const type = `paged-${direction}-${argument}`
    const add = () => api.engine.enqueueMany(Array.from({ length: 5 }, () => ({ type })))
    const before: string[] = []
    for (let n = 0; n < 8; n++) before.push(...(await add()).map(({ id }) => `JB_${id}`))
    const forwards = argument === 'first'
    const seen: string[] = []
    let cursor: string | null = null
    for (;;) {
      const { jobs } = await api.ask(
        `query ($types: [String!], $direction: OrderDirection!, $cursor: String) {
          jobs(filter: { types: $types }, orderBy: { direction: $direction }, ${argument}: 7, ${forwards ? 'after' : 'before'}: $cursor) { ${PAGE} } }`,
        { types: [type], direction, cursor },
      )
      const page = jobs as Connection
      const ids = page.nodes.map(({ id }) => id)
      seen.push(...(forwards ? ids : ids.toReversed()))
      cursor = forwards ? page.pageInfo.endCursor : page.pageInfo.startCursor
      if (!(forwards ? page.pageInfo.hasNextPage : page.pageInfo.hasPreviousPage)) break
      if (seen.length < 40) await add()
    }
    expect(new Set(seen).size).toBe(seen.length)
    const newestFirst = (direction === 'DESC') === forwards
    const kept = seen.filter((id) => before.includes(id))
    expect(kept).toEqual(newestFirst ? before.toReversed() : before)
    // Whoever pages towards the newest gets to what is added; from the newest on, nothing is put in between.
    expect(seen.length > before.length).toBe(!newestFirst)
  }
})
