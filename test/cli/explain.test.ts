import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { wrap } from '../../src/cli/explain/wrap.ts'
import { cellsOf } from '../../src/cli/tree/cells.ts'
import { createEngine, type Engine, type NewJob } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { coppiceHere, envOf } from './run.ts'

let database: TestDatabase
let engine: Engine
beforeAll(async () => {
  database = await createTestDatabase()
  const { connectionString, schema } = database
  engine = createEngine({ connectionString, schema })
})
beforeEach(() => sql('truncate coppice.job, coppice.job_event, coppice.assignee cascade'))
afterAll(async () => {
  await engine.stop()
  await database.drop()
})

const sql = (text: string, ...parameters: unknown[]) => database.pool.query(text, parameters)
const run = (...args: string[]) => coppiceHere(args, envOf(database))

async function ok(...args: string[]): Promise<string> {
  const ended = await run(...args)
  expect(ended).toMatchObject({ code: 0, stderr: '' })
  return ended.stdout
}

async function enqueue(job: NewJob): Promise<string> {
  return `JB_${(await engine.enqueue(job)).id}`
}

async function childOf(id: string): Promise<string> {
  const { rows } = await sql('select id from coppice.job where parent_id = $1', id.slice(3))
  return `JB_${rows[0].id}`
}

test('explain tells the reasons in lines that fit, and what is next', async () => {
  const id = await enqueue({
    type: 'digest',
    key: 'a\u001b[31m',
    timeouts: { wait: '2h' },
    children: [{ type: 'mid', children: [{ type: 'file', key: 'b.md', assigneeId: 'ada' }] }],
  })
  const text = await ok('explain', id)
  const lines = text.trimEnd().split('\n')
  expect(lines[0]).toBe(`${id} digest a\\u{1b}[31m waiting`)
  expect(lines[1]).toMatch(/^ {2}OPEN_CHILDREN: It has waited less than a second for its only child\. Held up by/)
  for (const line of lines.slice(1)) expect(cellsOf(line)).toBeLessThanOrEqual(100)
  expect(text.replaceAll(/\s+/g, ' ')).toMatch(
    /Held up by JB_\S+ \(file b\.md\), which has an assignee that nobody knows, AS_ada\. Next: .* after 2 h, it fails\. \(\d{4}-\S+Z\) $/,
  )
})

test('explain as JSON: global ids, facts, and instants', async () => {
  const id = await enqueue({ type: 'digest', children: [{ type: 'file', runAt: new Date('2040-01-31T08:00:00Z') }] })
  const child = await childOf(id)
  const json = JSON.parse(await ok('explain', child, '--json'))
  expect(json).toMatchObject({ id: child, treeId: id, parentId: id, type: 'file', key: null, state: 'queued' })
  expect(json.explain.map(({ reason }: { reason: string }) => reason)).toEqual(['no_worker', 'scheduled'])
  expect(json.explain[1]).toMatchObject({
    facts: { why: 'delay', runAt: '2040-01-31T08:00:00.000Z' },
    nextAt: '2040-01-31T08:00:00.000Z',
  })
  const parent = JSON.parse(await ok('explain', id.slice(3), '--json'))
  expect(parent.explain).toMatchObject([{ reason: 'open_children', jobs: [child], count: 1 }])
})

test('with --jobs the limits of types are known', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-explain-'))
  try {
    const module = path.join(folder, 'jobs.ts')
    const library = new URL('../../src/index.ts', import.meta.url).href
    await writeFile(
      module,
      `import { defineJob } from '${library}'
       export const one = defineJob({ type: 'one' }, { timeouts: { ingest: '5m' }, async run() {} })`,
    )
    const id = await enqueue({ type: 'one' })
    await sql(`update coppice.job set state = 'running', claimed_at = now() where id = $1`, id.slice(3))
    const limit = async (...more: string[]) => JSON.parse(await ok('explain', id, '--json', ...more)).explain[0].facts
    expect(await limit()).toMatchObject({ limitMs: 86_400_000, limitFrom: 'default' })
    expect(await limit('--jobs', module)).toMatchObject({ limitMs: 300_000, limitFrom: 'type' })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

test('explain of what is no job, or no longer one, fails', async () => {
  const unknown = 'JB_00000000-0000-4000-8000-000000000000'
  expect(await run('explain', unknown)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: `There is no job ${unknown}.\n`,
  })
  expect(await run('explain', 'nonsense')).toMatchObject({ code: 1, stderr: expect.stringContaining('Not a job id') })
  expect(await run('explain')).toMatchObject({ code: 2 })
})

test('stuck lists parents that nobody woke, and why', async () => {
  expect(await ok('stuck')).toBe('No parent is stuck.\n')
  expect(JSON.parse(await ok('stuck', '--json'))).toEqual({ jobs: [], more: false })
  const due = await enqueue({ type: 'p', key: 'due', children: [{ type: 'a' }] })
  const held = await enqueue({ type: 'p', key: 'held', assigneeId: 'ada', children: [{ type: 'a' }] })
  await enqueue({ type: 'p', children: [{ type: 'a' }] })
  await sql(`update coppice.job set state = 'completed' where parent_id in ($1, $2)`, due.slice(3), held.slice(3))
  await sql('update coppice.job set open_children = 0 where id in ($1, $2)', due.slice(3), held.slice(3))

  expect(await ok('stuck')).toMatch(
    new RegExp(
      `^${due} p due waiting\\n {2}WAKE_DUE: It has 1 child, none of them open: its wake is due\\.[^]*\\n\\n` +
        `${held} p held waiting\\n {2}ASSIGNEE_NOT_ACTIVE: It has an assignee that nobody knows, AS_ada\\.`,
    ),
  )
  expect(JSON.parse(await ok('stuck', '--json'))).toMatchObject({
    jobs: [
      { id: due, explain: [{ reason: 'wake_due' }] },
      { id: held, explain: [{ reason: 'assignee_not_active' }] },
    ],
    more: false,
  })
  expect(await ok('stuck', '--limit', '1')).toMatch(/There are more: --limit 10 shows them\.\n$/)
  expect(JSON.parse(await ok('stuck', '--limit', '1', '--json'))).toMatchObject({ jobs: [{ id: due }], more: true })
  expect(await run('stuck', '--limit', '0')).toMatchObject({ code: 2 })
  expect(await run('stuck', '--fix')).toMatchObject({ code: 2 })
})

test('orphans lists them, and with --fix cancels them', async () => {
  expect(await ok('orphans')).toBe('There are no orphans.\n')
  const parent = await enqueue({ type: 'p', children: Array.from({ length: 120 }, () => ({ type: 'a' })) })
  await sql(`update coppice.job set state = 'failed', finished_at = now() where id = $1`, parent.slice(3))
  const { jobs, more } = JSON.parse(await ok('orphans', '--json', '--limit', '110'))
  expect(jobs).toHaveLength(110)
  expect(more).toBe(true)
  expect(jobs[0]).toMatchObject({
    parentId: parent,
    state: 'queued',
    explain: [{ reason: 'orphaned' }, { reason: 'no_worker' }],
  })
  const text = await ok('orphans', '--limit', '1000')
  expect(text.match(/ORPHANED: /g)).toHaveLength(120)
  expect(text).not.toContain('NO_WORKER')

  expect(await ok('orphans', '--fix')).toBe('Cancelled 120 jobs of 1 parent.\n')
  expect(JSON.parse(await ok('orphans', '--fix', '--json'))).toEqual({ cancelled: 0, parents: 0 })
  expect(await ok('orphans', '--fix')).toBe('There are no orphans.\n')
  const { rows } = await sql(
    `select distinct state, cancel_code, (select actor from coppice.job_event e where e.job_id = j.id and "to" = 'cancelled')
     from coppice.job j where parent_id = $1`,
    parent.slice(3),
  )
  expect(rows).toEqual([{ state: 'cancelled', cancel_code: 'parent_failed', actor: 'cli' }])
})

test('words are wrapped between them, by the cells that they take', () => {
  const at = (columns: number, text: string) => wrap(text, { columns, first: '> ', below: '  ' })
  expect(at(10, 'one two three four')).toEqual(['> one two', '  three', '  four'])
  expect(at(8, 'one two')).toEqual(['> one', '  two'])
  expect(at(9, 'one two')).toEqual(['> one two'])
  expect(at(6, 'a 学校学校 b')).toEqual(['> a', '  学校学校', '  b'])
  expect(at(3, 'longer than')).toEqual(['> longer', '  than'])
})
