import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Api, startApi } from './api.ts'

// Pages are compared with a plain list: what a connection answers must be what slicing that list gives.

let api: Api
beforeAll(async () => {
  // No maintenance: its jobs are rows that no verb has made.
  api = await startApi({ start: false })
})
afterAll(() => api.stop())

const TREE = '01890000-0000-7000-8000-000000000000'
const STATES = ['queued', 'running', 'completed', 'failed'] as const

interface Row {
  id: string
  state: string
  /** Microseconds after a fixed instant. */
  created: number
  updated: number
  version: number
}

const uuid = (n: number) => `01890000-0000-7000-8000-${String(n).padStart(12, '0')}`

/** A parent with these children, and as many events of the parent. */
async function fill(rows: readonly Row[]): Promise<void> {
  const { pool } = api.test
  await pool.query('truncate coppice.job, coppice.job_event cascade')
  await pool.query(
    `insert into coppice.job (id, tree_id, type, state, created_at, updated_at)
     values ($1, $1, 'p', 'waiting', '2026-01-01', '2026-01-01')`,
    [TREE],
  )
  await pool.query(
    `insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type, state, created_at, updated_at)
     select id, $1, $1, 1, 1, 'c', state, timestamptz '2026-06-01Z' + created * interval '1 microsecond',
       timestamptz '2026-06-01Z' + updated * interval '1 microsecond'
     from unnest($2::uuid[], $3::text[], $4::int[], $5::int[]) as r(id, state, created, updated)`,
    [
      TREE,
      rows.map((row) => row.id),
      rows.map((row) => row.state),
      rows.map((row) => row.created),
      rows.map((row) => row.updated),
    ],
  )
  await pool.query(
    `insert into coppice.job_event (kind, job_id, tree_id, type, "to", phase, wave, attempt, version, actor)
     select 'progress', $1, $1, 'p', 'waiting', 'ingest', 0, 0, version, 'test' from unnest($2::int[]) as r(version)`,
    [TREE, rows.map((row) => row.version)],
  )
}

interface Connection {
  edges: { cursor: string; node: { id: string } }[]
  nodes: { id: string }[]
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null }
}

const PAGE = 'edges { cursor node { id } } nodes { id } pageInfo { hasNextPage hasPreviousPage startCursor endCursor }'
const ARGS = 'first: $first, after: $after, last: $last, before: $before'
const DECLARED = '$first: Int, $after: String, $last: Int, $before: String'

const rowsArbitrary = fc
  .array(
    fc.record({
      state: fc.constantFrom(...STATES),
      created: fc.integer({ min: 0, max: 4 }),
      updated: fc.integer({ min: 0, max: 4 }),
      version: fc.integer({ min: 1, max: 6 }),
    }),
    { minLength: 0, maxLength: 12 },
  )
  .map((rows) => rows.map((row, index): Row => ({ ...row, id: uuid(index + 1) })))

const argsArbitrary = fc.record({
  size: fc.integer({ min: 1, max: 14 }),
  backwards: fc.boolean(),
  after: fc.option(fc.nat(), { nil: undefined }),
  before: fc.option(fc.nat(), { nil: undefined }),
})
type Args = typeof argsArbitrary extends fc.Arbitrary<infer T> ? T : never

/** What a list answers to page arguments, by slicing. */
function model(list: readonly string[], args: Args, cursors: readonly string[]) {
  const pick = (n: number | undefined) => (n === undefined || list.length === 0 ? undefined : n % list.length)
  const [after, before] = [pick(args.after), pick(args.before)]
  const from = after === undefined ? 0 : after + 1
  const to = before === undefined ? list.length : before
  const range = from < to ? list.slice(from, to) : []
  const ids = args.backwards ? range.slice(-args.size) : range.slice(0, args.size)
  return {
    ids,
    variables: {
      ...(args.backwards ? { last: args.size } : { first: args.size }),
      ...(after !== undefined && { after: cursors[after] }),
      ...(before !== undefined && { before: cursors[before] }),
    },
    // Where the page is empty there is no edge for anything to be before or after.
    hasNextPage: ids.length > 0 ? list.indexOf(ids.at(-1)!) < list.length - 1 : undefined,
    hasPreviousPage: ids.length > 0 ? list.indexOf(ids[0]!) > 0 : undefined,
  }
}

/** Checks one connection: its whole list, then the page that the arguments ask for. */
async function check(
  list: readonly string[],
  args: Args,
  ask: (variables: Record<string, unknown>) => Promise<Connection>,
): Promise<void> {
  const whole = await ask({ first: 100 })
  expect(whole.nodes.map((node) => node.id)).toEqual(list)
  const expected = model(
    list,
    args,
    whole.edges.map((edge) => edge.cursor),
  )
  const page = await ask(expected.variables)
  expect(page.nodes.map((node) => node.id)).toEqual(expected.ids)
  expect(page.edges.map((edge) => edge.node.id)).toEqual(expected.ids)
  expect(page.pageInfo.startCursor).toBe(page.edges[0]?.cursor ?? null)
  expect(page.pageInfo.endCursor).toBe(page.edges.at(-1)?.cursor ?? null)
  if (expected.ids.length > 0) {
    expect(page.pageInfo.hasNextPage).toBe(expected.hasNextPage)
    expect(page.pageInfo.hasPreviousPage).toBe(expected.hasPreviousPage)
  }
}

test('jobs and children: every order, filter and page is what slicing the list gives', async () => {
  const request = fc.record({
    rows: rowsArbitrary,
    args: argsArbitrary,
    field: fc.constantFrom('CREATED_AT', 'UPDATED_AT'),
    direction: fc.constantFrom('ASC', 'DESC'),
    states: fc.option(fc.subarray([...STATES]), { nil: undefined }),
  })
  await fc.assert(
    fc.asyncProperty(request, async ({ rows, args, field, direction, states }) => {
      await fill(rows)
      const key = field === 'CREATED_AT' ? 'created' : 'updated'
      const list = rows
        .filter((row) => !states || states.includes(row.state as never))
        .sort((a, b) => a[key] - b[key] || (a.id < b.id ? -1 : 1))
        .map((row) => `JB_${row.id}`)
      if (direction === 'DESC') list.reverse()
      const common = { orderBy: { field, direction } }
      const filter = states && { states: states.map((state) => state.toUpperCase()) }
      await check(list, args, async (variables) => {
        const data = await api.ask(
          `query ($filter: JobFilter, $orderBy: JobOrder, ${DECLARED}) {
            jobs(filter: $filter, orderBy: $orderBy, ${ARGS}) { ${PAGE} } }`,
          { ...common, filter: { ...filter, roots: false }, ...variables },
        )
        return data.jobs
      })
      await check(list, args, async (variables) => {
        const data = await api.ask(
          `query ($id: ID!, $filter: JobFilter, $orderBy: JobOrder, ${DECLARED}) {
            job(id: $id) { children(filter: $filter, orderBy: $orderBy, ${ARGS}) { ${PAGE} } } }`,
          { id: TREE, ...common, ...(filter && { filter }), ...variables },
        )
        return data.job.children
      })
    }),
    { numRuns: 60 },
  )
})

test("a job's events: every page is what slicing the list gives", async () => {
  await fc.assert(
    fc.asyncProperty(rowsArbitrary, argsArbitrary, async (rows, args) => {
      await fill(rows)
      const stored = await api.test.pool.query('select id, version from coppice.job_event order by version, id')
      const list = stored.rows.map((row) => `EV_${row.id}`)
      await check(list, args, async (variables) => {
        const data = await api.ask(`query ($id: ID!, ${DECLARED}) { job(id: $id) { events(${ARGS}) { ${PAGE} } } }`, {
          id: TREE,
          ...variables,
        })
        return data.job.events
      })
    }),
    { numRuns: 40 },
  )
})

test('a tree: pages by depth and id, with states and depth, are what slicing the list gives', async () => {
  const request = fc.record({
    rows: rowsArbitrary,
    size: fc.integer({ min: 1, max: 14 }),
    maxDepth: fc.option(fc.integer({ min: 0, max: 2 }), { nil: null }),
    states: fc.option(fc.subarray([...STATES, 'waiting']), { nil: null }),
  })
  await fc.assert(
    fc.asyncProperty(request, async ({ rows, size, maxDepth, states }) => {
      await fill(rows)
      const jobs = [{ id: TREE, state: 'waiting', depth: 0 }, ...rows.map((row) => ({ ...row, depth: 1 }))]
      const list = jobs
        .filter(
          (job) => (!states || states.includes(job.state as never)) && (maxDepth === null || job.depth <= maxDepth),
        )
        .map((job) => `JB_${job.id}`)
      const found: string[] = []
      for (let after: string | null = null; ; ) {
        const { jobTree } = await api.ask(
          `query ($id: ID!, $first: Int!, $after: String, $states: [JobState!], $maxDepth: Int) {
            jobTree(id: $id) {
              counts { total }
              nodes(first: $first, after: $after, states: $states, maxDepth: $maxDepth) { ${PAGE} }
            }
          }`,
          { id: TREE, first: size, after, states: states?.map((state) => state.toUpperCase()) ?? null, maxDepth },
        )
        expect(jobTree.counts.total).toBe(jobs.length)
        const page = jobTree.nodes as Connection
        expect(page.nodes.length).toBeLessThanOrEqual(size)
        found.push(...page.nodes.map((node) => node.id))
        if (!page.pageInfo.hasNextPage) break
        after = page.pageInfo.endCursor
      }
      expect(found).toEqual(list)
    }),
    { numRuns: 40 },
  )
})

test('page sizes and cursors that make no sense are a top-level BAD_REQUEST', async () => {
  await fill([{ id: uuid(1), state: 'queued', created: 0, updated: 0, version: 1 }])
  const { jobs } = await api.ask('{ jobs { edges { cursor } } }')
  const byCreation = jobs.edges[0].cursor as string
  const id = TREE
  const wrong: [string, Record<string, unknown>][] = [
    ['query ($n: Int) { jobs(first: $n) { nodes { id } } }', { n: 0 }],
    ['query ($n: Int) { jobs(first: $n) { nodes { id } } }', { n: 101 }],
    ['query ($n: Int) { jobs(last: $n) { nodes { id } } }', { n: -1 }],
    ['{ jobs(first: 1, last: 1) { nodes { id } } }', {}],
    ['query ($id: ID!) { job(id: $id) { children(first: 101) { nodes { id } } } }', { id }],
    ['query ($id: ID!) { job(id: $id) { events(last: 101) { nodes { id } } } }', { id }],
    ['query ($id: ID!) { job(id: $id) { attempts(first: 0) { number } } }', { id }],
    ['query ($id: ID!) { jobTree(id: $id) { nodes(first: 10001) { nodes { id } } } }', { id }],
    ['query ($id: ID!) { jobTree(id: $id) { nodes(maxDepth: -1) { nodes { id } } } }', { id }],
    ['{ events(first: 101) { cursor } }', {}],
    ['query ($c: String) { jobs(after: $c) { nodes { id } } }', { c: 'rubbish' }],
    ['query ($c: String) { jobs(after: $c) { nodes { id } } }', { c: '' }],
    ['query ($c: String) { jobs(orderBy: { field: UPDATED_AT }, after: $c) { nodes { id } } }', { c: byCreation }],
    ['query ($id: ID!, $c: String) { job(id: $id) { events(after: $c) { nodes { id } } } }', { id, c: byCreation }],
    ['query ($id: ID!, $c: String) { jobTree(id: $id) { nodes(after: $c) { nodes { id } } } }', { id, c: byCreation }],
    ['query ($c: String) { events(after: $c) { cursor } }', { c: byCreation }],
    // A cursor of the right kind with an instant that does not exist.
    [
      'query ($c: String) { jobs(after: $c) { nodes { id } } }',
      {
        c: Buffer.from(JSON.stringify([1, 'job.created_at', '2026-02-30T00:00:00.000000Z', id])).toString('base64url'),
      },
    ],
    // A cursor of a later version.
    [
      'query ($c: String) { jobs(after: $c) { nodes { id } } }',
      {
        c: Buffer.from(JSON.stringify([2, 'job.created_at', '2026-02-03T00:00:00.000000Z', id])).toString('base64url'),
      },
    ],
  ]
  for (const [query, variables] of wrong) {
    const answer = await api.run(query, variables)
    expect(
      answer.errors?.map((error) => error.extensions.code),
      `${query} ${JSON.stringify(variables)}`,
    ).toEqual(['BAD_REQUEST'])
  }
  expect(api.log).toEqual([])
})
