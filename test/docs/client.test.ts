import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { WatchedJob } from '../../src/client/index.ts'
import { type CuttableApi, startCuttableApi } from '../client/cuttable-api.ts'
import { codeBlocksOf, writeCodeBlocks } from '../support/code-blocks.ts'
import { expireCursors } from '../support/expire-cursors.ts'
import { until } from '../support/until.ts'

// The blocks of docs/client.md, as they stand there, against a server that restarts under them.

const ROOT = path.resolve(import.meta.dirname, '../..')

let folder: string
let files: Map<string, string>
let api: CuttableApi
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-docs-'))
  const written = await writeCodeBlocks(await codeBlocksOf('client.md'), folder)
  files = new Map(written.map((file) => [path.basename(file, '.ts'), file]))
  api = await startCuttableApi()
})
afterAll(async () => {
  await api.close()
  await rm(folder, { recursive: true, force: true })
})

// biome-ignore lint/suspicious/noExplicitAny: the page says what is in it
const load = (name: string): Promise<any> => import(/* @vite-ignore */ files.get(name)!)

const subscribers = () => api.serving().feed.stats().subscribers

/** A tree whose jobs end while it is watched, with a restart in between. */
async function endUnderWay(watch: (id: string) => Promise<ReadonlyMap<string, { state: string }>>) {
  const { id } = await api.writer.enqueue({ type: 'root', children: [{ type: 'leaf' }, { type: 'leaf' }] })
  const watched = watch(id)
  await until(() => subscribers() === 1)
  const { rows } = await api.test.pool.query('select id from coppice.job where parent_id = $1', [id])
  await api.writer.cancelJob(rows[0].id)
  await api.down()
  await api.writer.cancelJob(rows[1].id)
  await api.up()
  await api.writer.cancelJob(id)
  const jobs = await watched
  expect([...jobs.values()].map((job) => job.state)).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED'])
  await until(() => subscribers() === 0)
}

test('the blocks compile', { timeout: 60_000 }, async () => {
  const config = {
    extends: path.join(ROOT, 'tsconfig.json'),
    include: ['*.ts'],
    compilerOptions: { rewriteRelativeImportExtensions: false },
  }
  await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
  const compiler = path.join(ROOT, 'node_modules/.bin/tsc')
  const { stdout } = await promisify(execFile)(compiler, ['--noEmit', '-p', folder]).catch(
    (error) => error as { stdout: string },
  )
  expect(stdout).toBe('')
  expect([...files.keys()].sort()).toEqual([
    'after-restart',
    'by-hand',
    'with-helper',
    'with-socket',
    'with-token',
    'with-urql',
  ])
})

test('by hand: a tree is followed to its end across a restart', async () => {
  const { followTree } = await load('by-hand')
  const { error } = console
  const said: unknown[] = []
  console.error = (...given) => said.push(given)
  try {
    await endUnderWay((id) => followTree(api.url, id))
  } finally {
    console.error = error
  }
})

const ENDED = ['COMPLETED', 'FAILED', 'CANCELLED']

test('with the helper: the same, and over a WebSocket', async () => {
  const { endOfTree } = await load('with-helper')
  await endUnderWay((id) => endOfTree(api.url, id))
  const { clientFor } = await load('with-socket')
  const { warn } = console
  const said: string[] = []
  console.warn = (text) => said.push(text)
  try {
    const client = clientFor(api.url)
    await endUnderWay(async (id) => {
      const jobs = new Map<string, WatchedJob>()
      for await (const update of client.watchTree(id)) {
        for (const job of update.jobs) jobs.set(job.id, job)
        const over = update.counts.open === 0 && [...jobs.values()].every((job) => ENDED.includes(job.state))
        if (update.caughtUp && over) break
      }
      return jobs
    })
    expect(said.join('\n')).toMatch(/^It ended: SHUTDOWN\. Again in \d+ ms\.$/m)
  } finally {
    console.warn = warn
  }
})

test('with a token: it is asked for', async () => {
  const { clientWith } = await load('with-token')
  const asked: unknown[] = []
  const client = clientWith(api.url, async (options: unknown) => {
    asked.push(options)
    return 'token'
  })
  const { id } = await api.writer.enqueue({ type: 'tokened' })
  for await (const job of client.watchJob(id)) {
    expect(job.id).toBe(`JB_${id}`)
    break
  }
  expect(asked).toEqual([{ fresh: false }])
})

test('after a restart of the program: events go on where they were dealt with, and a gap is said', async () => {
  const { consume } = await load('after-restart')
  const handled: string[] = []
  let cursor: string | undefined
  const store = {
    load: async () => cursor,
    save: async (next: string) => {
      cursor = next
    },
  }
  const run = (until: AbortSignal) =>
    consume(api.url, ['eaten'], store, async (event: { jobId: string }) => void handled.push(event.jobId), until)
  const first = new AbortController()
  const running = run(first.signal)
  await until(() => cursor !== undefined)
  const ids = [(await api.writer.enqueue({ type: 'eaten' })).id]
  await until(() => handled.length === 1)
  first.abort()
  await running
  ids.push((await api.writer.enqueue({ type: 'eaten' })).id)
  const second = new AbortController()
  const again = run(second.signal)
  await until(() => handled.length === 2)
  second.abort()
  await again
  expect(handled).toEqual(ids.map((id) => `JB_${id}`))

  await expireCursors(api.test.pool)
  const { warn } = console
  const said: unknown[] = []
  console.warn = (text) => said.push(text)
  const third = new AbortController()
  const last = run(third.signal)
  await until(() => said.length === 1).finally(() => {
    console.warn = warn
  })
  third.abort()
  await last
  await until(() => subscribers() === 0)
})

test('with urql: queries, and a subscription that survives a restart', async () => {
  const { urqlFor } = await load('with-urql')
  const urql = urqlFor(api.url)
  expect((await urql.query('{ viewer { name } }', {}).toPromise()).data.viewer.name).toBe('anonymous')
  const query =
    'subscription ($after: String) { jobEvents(filter: { types: ["urql"] }, after: $after) { events { id jobId } cursor ended } }'
  const told: string[] = []
  let frames = 0
  const { unsubscribe } = urql
    .subscription(query, {})
    .subscribe((result: { data?: { jobEvents: { events: { jobId: string }[] } } }) => {
      frames++
      told.push(...(result.data?.jobEvents.events ?? []).map((event) => event.jobId))
    })
  await until(() => frames > 0)
  const ids = [(await api.writer.enqueue({ type: 'urql' })).id]
  await until(() => told.length === 1)
  await api.down()
  ids.push((await api.writer.enqueue({ type: 'urql' })).id)
  await api.up()
  // Its pauses grow from try to try.
  await until(() => told.length === 2, { timeout: 40_000 })
  expect(told).toEqual(ids.map((id) => `JB_${id}`))
  unsubscribe()
  await until(() => subscribers() === 0)
})
