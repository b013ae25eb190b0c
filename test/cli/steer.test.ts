import { writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createEngine, type Engine } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { coppiceHere, envOf } from './run.ts'

describe('commands that steer', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let engine: Engine
  beforeAll(async () => {
    database = await createTestDatabase()
    engine = createEngine({ connectionString: database.connectionString, schema: database.schema })
  })
  afterAll(async () => {
    await engine.stop()
    await database.drop()
  })

  async function ok(...args: string[]): Promise<string> {
    const ended = await coppiceHere(args, envOf(database))
    expect(ended).toMatchObject({ code: 0, stderr: '' })
    return ended.stdout.trimEnd()
  }

  async function json(...args: string[]) {
    return JSON.parse(await ok(...args, '--json'))
  }

  async function fails(code: number, message: RegExp, ...args: string[]): Promise<void> {
    const ended = await coppiceHere(args, envOf(database))
    expect(ended).toMatchObject({ code, stdout: '' })
    expect(ended.stderr).toMatch(message)
    expect(ended.stderr).not.toMatch(/^\s+at /m)
  }

  const sql = async (text: string, parameters: unknown[] = []) => (await database.pool.query(text, parameters)).rows

  async function enqueue(more: object = {}): Promise<string> {
    const [handle] = await engine.enqueueMany([{ type: 'p', children: [{ type: 'c' }, { type: 'c' }], ...more }])
    return `JB_${handle!.id}`
  }

  async function lastEvent(id: string) {
    const [event] = await sql(
      `select kind, "to", actor, reason from ${database.schema}.job_event where job_id = $1 order by version desc limit 1`,
      [id.slice(3)],
    )
    return event
  }

  test('cancel and delete take the descendants along, and say how many', async () => {
    const id = await enqueue()
    expect(await ok('cancel', id, '--reason', 'INC-1')).toBe(`${id} cancelled with 2 descendants`)
    expect(await lastEvent(id)).toEqual({ kind: 'moved', to: 'cancelled', actor: 'cli', reason: 'INC-1' })
    await fails(1, /^Job JB_\S+ is cancelled: it cannot be cancelled\.\n$/, 'cancel', id)
    const other = await enqueue({ children: [{ type: 'c' }] })
    expect(await ok('delete', other)).toBe(`${other} deleted, 1 descendant cancelled`)
    expect(await lastEvent(other)).toMatchObject({ kind: 'deleted', actor: 'cli' })
    await fails(1, /^There is no job /, 'delete', other)
    expect(await json('delete', id)).toEqual({ deletedId: id, cancelledDescendants: 0 })
  })

  test('pause and resume take one job, or a whole tree', async () => {
    const id = await enqueue()
    const paused = async () =>
      (
        await sql(`select count(*)::int as n from ${database.schema}.job where tree_id = $1 and state = 'paused'`, [
          id.slice(3),
        ])
      )[0].n
    expect(await ok('pause', id)).toBe(`${id} paused`)
    expect(await paused()).toBe(1)
    expect((await json('pause', id, '--descendants')).job).toMatchObject({ id, state: 'paused' })
    expect(await paused()).toBe(3)
    expect(await ok('resume', id, '--descendants')).toBe(`${id} waiting`)
    expect(await paused()).toBe(0)
    await fails(1, /is waiting: it cannot be resumed/, 'resume', id)
  })

  test('retry opens a job again, with what is below it', async () => {
    const id = await enqueue()
    await ok('cancel', id)
    const answer = await json('retry', id, '--descendants', '--reason', 'again')
    expect(answer).toMatchObject({ job: { id, state: 'waiting' }, reopenedDescendants: 2 })
    expect(JSON.stringify(answer)).not.toContain('claimToken')
    expect(await lastEvent(id)).toMatchObject({ to: 'waiting', reason: 'again' })
    await fails(1, /cannot be retried/, 'retry', id, '--rerun')
  })

  test('rewake says what is open, and wakes when forced', async () => {
    const id = await enqueue()
    await fails(1, /^Job JB_\S+ has 2 open children: JB_\S+, JB_\S+\.\n$/, 'rewake', id)
    expect(await json('rewake', id, '--force', '--reason', 'INC-2')).toMatchObject({
      job: { id, state: 'queued', phase: 'aggregate' },
      receipt: { parentId: id, source: 'manual', forced: true, wave: 1 },
    })
    expect(await lastEvent(id)).toEqual({ kind: 'moved', to: 'queued', actor: 'cli', reason: 'INC-2' })
    await fails(1, /was woken for wave 1 and is QUEUED in AGGREGATE/, 'rewake', id, '--force')
    const other = await enqueue()
    expect(await ok('rewake', other, '--force')).toBe(`${other} queued for wave 1, forced`)
  })

  test('archive and unarchive', async () => {
    const id = await enqueue()
    expect(await ok('archive', id)).toBe(`${id} cancelled and archived`)
    expect((await json('unarchive', id)).job).toMatchObject({ id, archivedAt: null })
    await fails(1, /not archived: it cannot be unarchived/, 'unarchive', id)
  })

  test('spawn adds a child to a parent that waits', async () => {
    const id = await enqueue()
    const file = path.join(os.tmpdir(), `coppice-child-${process.pid}.json`)
    await writeFile(file, '{"type":"added","key":"one"}')
    const child = await ok('spawn', id, '--file', file)
    expect(await json('spawn', id, '--file', file)).toEqual({ id: child, deduplicated: true })
    expect(await engine.job(child)).toMatchObject({ type: 'added', parentId: id.slice(3) })
    await fails(2, /required option '--file/, 'spawn', id)
  })

  test('assignee makes one, changes it, and delivers what was withheld', async () => {
    expect(await json('assignee', 'AS_ann', 'paused')).toMatchObject({ id: 'AS_ann', status: 'paused', woken: [] })
    const [handle] = await engine.enqueueMany([{ type: 'p', assigneeId: 'ann', children: [{ type: 'c' }] }])
    const [child] = await sql(`select id from ${database.schema}.job where parent_id = $1`, [handle!.id])
    await ok('cancel', child.id)
    await fails(1, /is withheld: its assignee AS_ann is paused/, 'rewake', handle!.id, '--force')
    expect(await ok('assignee', 'ann', 'active')).toBe('AS_ann active; parents woken: 1')
    expect(await ok('assignee', 'ann', 'PENDING_APPROVAL')).toBe('AS_ann pending_approval; parents woken: 0')
    expect(await json('assignee', 'ann', 'ACTIVE')).toMatchObject({ id: 'AS_ann', status: 'active' })
    await fails(2, /STATUS is "awake": expected one of active, /, 'assignee', 'ann', 'awake')
  })

  test('an id that is none is refused by each', async () => {
    for (const command of ['cancel', 'delete', 'pause', 'resume', 'retry', 'rewake', 'archive', 'unarchive']) {
      await fails(1, /Not a job id: "JB_7"/, command, 'JB_7')
    }
  })

  test('cancel, retry, archive and delete take many jobs by flags, after a dry run', async () => {
    const list = Array.from({ length: 12 }, () => ({ type: 'many', queue: 'slow', children: [{ type: 'below' }] }))
    const ids = (await engine.enqueueMany(list)).map(({ id }) => `JB_${id}`)
    const flags = ['--type', 'many,other', '--queue', 'slow']
    const lines = (await ok('cancel', ...flags, '--state', 'WAITING', '--dry-run', '--limit', '11')).split('\n')
    expect(lines[0]).toBe('Would be cancelled: 11 jobs, of 12 jobs that match; 11 descendants cancelled with them')
    expect(lines.slice(1)).toEqual([...ids.slice(0, 10).map((id) => `  ${id} many waiting`), '  and 1 other'])
    const answer = await json('cancel', ...flags, '--reason', 'INC-3')
    expect(answer).toMatchObject({ dryRun: false, matched: 12, changed: 12, cancelledDescendants: 12 })
    expect(answer.sample[0]).toMatchObject({ id: ids[0], state: 'cancelled', cancelReason: 'INC-3' })
    expect(await lastEvent(ids[11]!)).toEqual({ kind: 'moved', to: 'cancelled', actor: 'cli', reason: 'INC-3' })
    expect((await ok('retry', ...flags, '--created-after', '2020-01-01T00:00:00Z')).split('\n')[0]).toBe(
      '12 jobs opened again',
    )
    expect((await ok('archive', '--tree', ids[0]!, '--roots')).split('\n')[0]).toBe(
      '1 job archived; 1 descendant cancelled with them',
    )
    expect((await ok('delete', ...flags, '--archived')).split('\n')).toEqual([
      '1 job deleted',
      `  ${ids[0]} many cancelled`,
    ])
    expect(await json('delete', '--search', ids[1]!)).toMatchObject({ changed: 1, cancelledDescendants: 1 })
  })

  test('one job and many do not go together, and flags that make no sense are refused', async () => {
    const id = await enqueue()
    await fails(2, /^Give either the ID of one job, or flags/, 'cancel', id, '--type', 'a')
    await fails(2, /^Give either the ID of one job, or flags/, 'cancel', id, '--dry-run')
    await fails(2, /^Give the ID of a job, or flags/, 'delete')
    await fails(2, /^--rerun is for one job/, 'retry', '--type', 'a', '--rerun')
    await fails(2, /^--state is "asleep": expected one of queued, /, 'cancel', '--state', 'asleep')
    await fails(2, /^--error-code is "X": expected one of AI_FAILURE, /, 'retry', '--error-code', 'X')
    await fails(2, /^--created-before is "2030": expected an instant/, 'archive', '--created-before', '2030')
    await fails(1, /limit: must be from 1 to 10000/, 'cancel', '--type', 'a', '--limit', '0')
    await fails(1, /filter: must say which jobs/, 'cancel', '--search', '')
    await fails(1, /Not a job id/, 'cancel', '--tree', 'JB_7')
  })
})
