import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { coppice, coppiceHere, type Ended, envOf, killAll, ROOT, type Running, start } from './run.ts'

const JOBS = ['--jobs', 'examples/index.ts']

describe('commands', { timeout: 180_000 }, () => {
  let database: TestDatabase
  let folder: string
  const running: Running[] = []
  beforeAll(async () => {
    database = await createTestDatabase()
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-commands-'))
  })
  afterEach(() => killAll(running.splice(0)))
  afterAll(async () => {
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  })

  function begin(args: string[], env: Record<string, string> = {}): Running {
    const begun = start(args, { ...envOf(database), ...env })
    running.push(begun)
    return begun
  }

  async function ok(args: string[], stdin?: string): Promise<string> {
    const ended =
      stdin === undefined ? await coppiceHere(args, envOf(database)) : await coppice(args, envOf(database), stdin)
    expect(ended).toMatchObject({ code: 0 })
    return ended.stdout.trimEnd()
  }

  async function stopped({ child, ended }: Running, signal: NodeJS.Signals): Promise<Ended> {
    child.kill(signal)
    return ended
  }

  test('serve runs jobs and serves the API; enqueue and tree go beside it; SIGTERM ends it in order', async () => {
    const serve = begin(['serve', ...JOBS, '--port', '0'])
    const [, url] = await serve.said(/at (http:\/\/127\.0\.0\.1:\d+)\/graphql/)
    await serve.said(/It runs .*digest-file, .*word-count-part\.\nCtrl-C/)
    expect((await fetch(`${url}/readyz`)).status).toBe(200)

    const payload = JSON.stringify({ path: path.join('examples') })
    const id = await ok(['enqueue', 'digest-folder', '--payload', payload, '--key', 'examples'])
    expect(id).toMatch(/^JB_[0-9a-f-]{36}$/)
    const again = JSON.parse(
      await ok(['enqueue', 'digest-folder', '--payload', payload, '--key', 'examples', '--wait', '--json']),
    )
    expect(again).toMatchObject({ id, deduplicated: true, state: 'completed', result: { links: 0, unreadable: 0 } })

    const query = `{ job(id: "${id}") { state result childCounts { completed } } }`
    const response = await fetch(`${url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    })
    const { data } = (await response.json()) as { data: { job: { state: string; result: object } } }
    expect(data.job).toMatchObject({ state: 'COMPLETED', result: again.result })

    const lines = (await ok(['tree', id])).split('\n')
    expect(lines[0]).toMatch(new RegExp(`^█{20} .* completed ${id}$`))
    expect(lines[1]).toMatch(/^✔ digest-folder examples completed \d+ children$/)
    expect(lines.some((line) => line.endsWith('✔ digest-file digest-folder.ts completed'))).toBe(true)

    const tree = JSON.parse(await ok(['tree', id, '--json']))
    expect(tree).toMatchObject({ treeId: id, counts: { total: lines.length - 1, completed: lines.length - 1 } })
    expect(tree.jobs).toHaveLength(lines.length - 1)
    expect(tree.jobs[0]).toMatchObject({ id, key: 'examples', state: 'completed', result: again.result })
    expect(JSON.stringify(tree)).not.toContain('claimToken')

    expect(await stopped(serve, 'SIGTERM')).toMatchObject({ code: 0, signal: null })
    expect(serve.stderr).toMatch(/"signal":"SIGTERM","msg":"Stopping"/)
    await expect(fetch(`${url}/readyz`)).rejects.toThrow()
    const { rows } = await database.pool.query(`select 1 from ${database.schema}.worker where dead_at is null`)
    expect(rows).toEqual([])
  })

  test('npm start ends with npm, whatever the shell in between does', async () => {
    const npm = spawn('npm', ['start', '--', '--port', '0'], { cwd: ROOT, env: { ...process.env, ...envOf(database) } })
    let said = ''
    npm.stdout.on('data', (chunk) => {
      said += chunk
    })
    await until(() => said.includes('Ctrl-C'), { timeout: 45_000, what: 'npm start to serve' })
    const { rows } = await database.pool.query<{ pid: number }>(
      `select pid from ${database.schema}.worker where dead_at is null`,
    )
    npm.kill('SIGTERM')
    for (const { pid } of rows) await until(() => !isAlive(pid), { timeout: 20_000, what: `process ${pid} to end` })
    expect(rows).toHaveLength(1)
    const left = await database.pool.query(`select 1 from ${database.schema}.worker where dead_at is null`)
    expect(left.rows).toEqual([])
  })

  test('serve --no-worker serves and runs nothing; work runs and serves nothing', async () => {
    const workers = async () => (await database.pool.query(`select id from ${database.schema}.worker`)).rows
    const before = await workers()
    const serve = begin(['serve', ...JOBS, '--no-worker', '--port', '0', '--json'])
    const { url, types } = JSON.parse((await serve.said(/^\{.*\}\n/))[0])
    expect(types).toEqual([])
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        query: 'mutation { enqueueJob(input: { type: "noop" }) { ... on EnqueueJobSuccess { job { id state } } } }',
      }),
    })
    const { data } = (await response.json()) as { data: { enqueueJob: { job: { id: string; state: string } } } }
    const { id } = data.enqueueJob.job
    const state = async () => {
      const { rows } = await database.pool.query(`select state from ${database.schema}.job where id = $1`, [
        id.slice(3),
      ])
      return rows[0].state
    }
    expect(await state()).toBe('queued')
    expect(await workers()).toEqual(before)

    const work = begin(['work', ...JOBS])
    await work.said(/^Working on .*digest-file, /)
    await until(async () => (await state()) === 'completed', { what: 'the worker to run the job' })
    expect(await stopped(work, 'SIGINT')).toMatchObject({ code: 0 })
    expect(await stopped(serve, 'SIGINT')).toMatchObject({ code: 0 })
  })

  test('SIGTERM lets a running job end; a second signal does not wait for it', async () => {
    const module = path.join(folder, 'slow.ts')
    const library = new URL('../../src/index.ts', import.meta.url).href
    await writeFile(
      module,
      `import { defineJob } from '${library}'
       export const slow = defineJob({ type: 'slow' }, { async run(ctx) {
         console.log('running', ctx.payload.ms)
         await new Promise((resolve) => setTimeout(resolve, ctx.payload.ms))
         return 'done'
       } })`,
    )
    const endOf = async (id: string) => {
      const { rows } = await database.pool.query(
        `select state, retry_count, result from ${database.schema}.job where id = $1`,
        [id.slice(3)],
      )
      return rows[0]
    }
    const patient = begin(['work', '--jobs', module])
    const short = await ok(['enqueue', 'slow', '--payload', '{"ms":3000}'])
    await patient.said(/running 3000/)
    expect(await stopped(patient, 'SIGTERM')).toMatchObject({ code: 0 })
    expect(await endOf(short)).toEqual({ state: 'completed', retry_count: 0, result: 'done' })

    const hasty = begin(['work', '--jobs', module])
    await ok(['enqueue', 'slow', '--payload', '{"ms":600000}'])
    await hasty.said(/running 600000/)
    hasty.child.kill('SIGTERM')
    await hasty.said(/"Stopping"/, 'stderr')
    // Twice for one key press is npm's doing: only a signal that comes later counts.
    await until(
      () => {
        hasty.child.kill('SIGINT')
        return hasty.child.exitCode !== null
      },
      { interval: 400, what: 'the second signal to end it' },
    )
    expect(await hasty.ended).toMatchObject({ code: 130 })

    const graceless = begin(['work', '--jobs', module, '--grace', '100ms'])
    const long = await ok(['enqueue', 'slow', '--payload', '{"ms":600001}'])
    await graceless.said(/running 600001/)
    expect(await stopped(graceless, 'SIGTERM')).toMatchObject({ code: 0 })
    expect(await endOf(long)).toEqual({ state: 'queued', retry_count: 0, result: null })
    await database.pool.query(`delete from ${database.schema}.job where type = 'slow'`)
  })

  test('enqueue takes a tree from a file or from standard input, and --wait tells how it ended', async () => {
    const tree = {
      type: 'noop',
      key: 'top',
      children: [
        { type: 'noop', key: 'in', children: [] },
        { type: 'noop', runAt: '2030-01-01T00:00:00+01:00' },
      ],
    }
    const file = path.join(folder, 'tree.json')
    await writeFile(file, JSON.stringify(tree))
    const id = await ok(['enqueue', '--file', file, '--priority', '-3'])
    const fromStdin = JSON.parse(await ok(['enqueue', '--file', '-', '--json'], JSON.stringify(tree)))
    expect(fromStdin).toEqual({ id, deduplicated: true })
    const { rows } = await database.pool.query(
      `select depth, key, state, priority, run_at from ${database.schema}.job where tree_id = $1 order by depth, id`,
      [id.slice(3)],
    )
    expect(rows).toMatchObject([
      { depth: 0, key: 'top', state: 'waiting', priority: -3 },
      { depth: 1, key: 'in' },
      { depth: 1, key: null, state: 'queued', run_at: new Date('2029-12-31T23:00:00Z') },
    ])

    begin(['work', ...JOBS])
    const failed = await coppiceHere(
      ['enqueue', 'flaky', '--payload', '{"failures":9}', '--max-retries', '0', '--wait'],
      envOf(database),
    )
    expect(failed).toMatchObject({ code: 1, stdout: '' })
    expect(failed.stderr).toMatch(/JB_\S+ failed: UNKNOWN Attempt 1 fails/)
    const late = await coppiceHere(
      ['enqueue', 'noop', '--run-at', '2030-01-01T00:00:00Z', '--wait', '--timeout', '300ms'],
      envOf(database),
    )
    expect(late).toMatchObject({ code: 1 })
    expect(late.stderr).toMatch(/did not end within 300 ms/)
  })

  test('tree --watch tells what happens until the root has ended, as lines or as JSON', async () => {
    const children = [
      { type: 'noop', key: 'a' },
      { type: 'flaky', key: 'b', payload: { failures: 1, delay: '50ms' } },
    ]
    const job = JSON.stringify({ type: 'noop', key: 'watched', children })
    const id = await ok(['enqueue', '--file', '-'], job)
    const lines = begin(['tree', id, '--watch'])
    const json = begin(['tree', id, '--watch', '--json'])
    await lines.said(/· flaky b queued\n/)
    await json.said(/\n/)
    begin(['work', ...JOBS])
    const [asLines, asJson] = await Promise.all([lines.ended, json.ended])
    expect(asLines).toMatchObject({ code: 0 })
    expect(asLines.stdout).toMatch(
      /^░{20} 0\/3 jobs .*\n◌ noop watched waiting ░{10} 0\/2\n├─ · noop a queued\n└─ · flaky b queued\n/,
    )
    expect(asLines.stdout).toMatch(/\n\d\d:\d\d:\d\d\.\d{3} flaky b JB_\S+ running → queued Attempt 1 fails[^\n]*\n/)
    expect(asLines.stdout).toMatch(/ noop watched JB_\S+ running → completed \(aggregate\)\n$/)

    expect(asJson).toMatchObject({ code: 0 })
    const [first, ...events] = asJson.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(first).toMatchObject({ root: { id, state: 'waiting' }, counts: { total: 3, open: 3 } })
    const ofRoot = events.filter((event) => event.jobId === id).map(({ from, to }) => `${from} ${to}`)
    expect(ofRoot).toEqual(['waiting queued', 'queued running', 'running completed'])
    // Nothing twice, nothing left out: versions go up by one.
    const versions = events.filter((event) => event.type === 'flaky').map(({ version }) => version)
    expect(versions).toEqual(versions.map((_, index) => versions[0] + index))
    expect(versions.length).toBeGreaterThanOrEqual(4)
  })

  test('tree --watch ends with 1 when the root fails or is deleted', async () => {
    const id = await ok(['enqueue', 'unknown-type'])
    const watch = begin(['tree', id, '--watch'])
    await watch.said(/queued\n/)
    const { createEngine } = await import('../../src/engine/create-engine.ts')
    const engine = createEngine({ connectionString: database.connectionString, schema: database.schema })
    await engine.deleteJob(id)
    await engine.stop()
    expect(await watch.ended).toMatchObject({ code: 1 })
    expect(watch.stdout).toMatch(/unknown-type JB_\S+ deleted\n$/)
    expect(await coppiceHere(['tree', id, '--watch'], envOf(database))).toMatchObject({ code: 1 })
  })

  test('migrate sets a schema up, once', async () => {
    const env = { ...envOf(database), COPPICE_SCHEMA: 'fresh', COPPICE_LOG_LEVEL: 'error' }
    const first = await coppiceHere(['migrate', '--json'], env)
    expect(first.code).toBe(0)
    const result = JSON.parse(first.stdout)
    expect(result).toMatchObject({ schema: 'fresh', from: 0 })
    expect(result.applied[0]).toBe('0001_job_trees')
    const second = await coppiceHere(['migrate'], env)
    expect(second).toMatchObject({ code: 0, stdout: `Schema "fresh" is up to date at version ${result.to}.\n` })
  })

  test('without DATABASE_URL commands share an embedded server in the data folder', async () => {
    const env = { COPPICE_DATA_DIR: path.join(folder, 'data'), PORT: '0' }
    const serve = start(['serve', ...JOBS], env)
    running.push(serve)
    await serve.said(/Ctrl-C/)
    const beside = await coppice(['enqueue', 'noop', '--wait', '--json'], env)
    expect(beside).toMatchObject({ code: 0 })
    const { id } = JSON.parse(beside.stdout)
    expect(await stopped(serve, 'SIGTERM')).toMatchObject({ code: 0 })
    // Alone, a command starts the server for itself: what was there still is.
    const alone = await coppiceHere(['tree', id], env)
    expect(alone.stdout).toMatch(/✔ noop completed\n$/)
  })
})

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
