import { createConnection, createServer, type Server, type Socket } from 'node:net'
import { pino } from 'pino'
import { afterEach, describe, expect, test } from 'vitest'
import { cellsOf, type Line, textOf } from '../../src/cli/tree/cells.ts'
import { engineSource } from '../../src/cli/tree/engine-source.ts'
import type { Size } from '../../src/cli/tree/layout.ts'
import { readTree } from '../../src/cli/tree/read.ts'
import { type Screen, watchScreen } from '../../src/cli/tree/watch-screen.ts'
import { defineJob } from '../../src/index.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { createGate, type Gate } from '../support/gate.ts'
import { until } from '../support/until.ts'

/** A screen that remembers what was drawn on it. */
function recordingScreen(size: Size): Screen & { frames: string[][]; resize(size: Size): void; listeners: number } {
  const listeners = new Set<() => void>()
  const frames: string[][] = []
  return {
    frames,
    size: () => size,
    draw(lines: readonly Line[]) {
      const frame = lines.map(textOf)
      expect(frame.length).toBeLessThanOrEqual(size.rows)
      for (const line of frame) expect(cellsOf(line)).toBeLessThanOrEqual(size.columns)
      frames.push(frame)
    },
    onResize(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    resize(changed) {
      size = changed
      for (const listener of listeners) listener()
    },
    get listeners() {
      return listeners.size
    },
  }
}

/** A busy machine may take its time. */
const soon = (condition: () => unknown) => until(condition, { timeout: 45_000 })

describe('watchScreen', { timeout: 120_000 }, () => {
  const open: { close(): Promise<void> }[] = []
  afterEach(async () => {
    for (const one of open.splice(0).reverse()) await one.close()
  })

  async function engineOf(options: Parameters<typeof createTestEngine>[0]): Promise<TestEngine> {
    const made = await createTestEngine(options)
    open.push(made)
    return made
  }

  /** The other side: an engine that only looks on, and what it sees. */
  async function watching({ engine: { database }, test }: TestEngine, treeId: string, size: Size, url?: string) {
    const { engine } = await engineOf({ test, start: false, ...(url !== undefined && { connectionString: url }) })
    expect(engine.database).not.toBe(database)
    const source = await engineSource(engine, treeId, pino({ level: 'silent' }))
    open.push(source)
    const screen = recordingScreen(size)
    const stopping = new AbortController()
    return { screen, stopping, end: watchScreen(source, screen, stopping.signal) }
  }

  function gated(): { gates: Map<string, Gate>; job: ReturnType<typeof defineJob> } {
    const gates = new Map<string, Gate>()
    const job = defineJob(
      { type: 'gated' },
      {
        async run(ctx) {
          if (ctx.phase === 'aggregate') return
          ctx.progress(1, 4, 'quarter')
          await gates.get(ctx.key ?? '')?.opened
        },
      },
    )
    return { gates, job }
  }

  const child = (key: string) => ({ type: 'gated', key })

  test('draws every change of a tree until its root has ended', async () => {
    const { gates, job } = gated()
    for (const key of ['a', 'b']) gates.set(key, createGate())
    const worker = await engineOf({ jobs: [job] })
    const root = await worker.engine.enqueue({ type: 'gated', key: 'top', children: [child('a'), child('b')] })
    const { screen, end } = await watching(worker, root.id, { columns: 100, rows: 20 })
    const last = () => screen.frames.at(-1) ?? []
    await soon(() => last().includes('├─ ▶ gated a running ██░░░░░░░░ 1/4 quarter'))
    expect(last()[1]).toBe('◌ gated top waiting ░░░░░░░░░░ 0/2')

    gates.get('a')!.open()
    await soon(() => last().includes('├─ ✔ gated a completed'))
    expect(last()).toContain('◌ gated top waiting █████░░░░░ 1/2')
    gates.get('b')!.open()
    expect((await end)?.root.state).toBe('completed')
    expect(last().slice(1)).toEqual([
      '✔ gated top completed 2 children',
      '├─ ✔ gated a completed',
      '└─ ✔ gated b completed',
    ])
    expect(screen.listeners).toBe(0)
  })

  test('fits a large tree to the screen, and draws anew at once when its size changes', async () => {
    const { gates, job } = gated()
    gates.set('slow', createGate())
    const children = [child('slow'), ...Array.from({ length: 1499 }, (_, i) => ({ type: 'elsewhere', key: `c${i}` }))]
    const worker = await engineOf({ jobs: [job] })
    const root = await worker.engine.enqueue({ type: 'gated', children })
    const { screen, stopping, end } = await watching(worker, root.id, { columns: 70, rows: 10 })
    await soon(() => screen.frames.at(-1)?.includes('├─ ▶ gated slow running ██░░░░░░░░ 1/4 quarter'))
    expect(screen.frames.at(-1)!.slice(1)).toEqual([
      '◌ gated waiting ░░░░░░░░░░ 0/1,500',
      '├─ ▶ gated slow running ██░░░░░░░░ 1/4 quarter',
      '└─ · 1,499 queued',
    ])
    const before = screen.frames.length
    screen.resize({ columns: 30, rows: 3 })
    expect(screen.frames).toHaveLength(before + 1)
    expect(screen.frames.at(-1)).toEqual([
      '░░░░░░░░░░░░░░░░░░░░ 0/1,501 …',
      '◌ gated waiting ░░░░░░░░░░ 0/…',
      '└─ ▶ 1 running, 1,499 queued',
    ])
    stopping.abort()
    expect((await end)?.root.state).toBe('waiting')
    gates.get('slow')!.open()
  })

  test('finds failures anywhere in a large tree, and the way to them', async () => {
    const worker = await engineOf({ start: false })
    const { engine } = worker
    const leaves = (count: number) => Array.from({ length: count }, (_, i) => ({ type: 'leaf', key: `${i}` }))
    const deep = {
      type: 'in',
      key: 'x',
      children: [{ type: 'in', key: 'y', children: [{ type: 'in', key: 'z', children: leaves(5) }] }],
    }
    const root = await engine.enqueue({ type: 'in', key: 'top', children: [...leaves(1200), deep] })
    const t = engine.database.tables.job
    // By hand, as one may: the rows are what is read.
    await engine.database.pool.query(
      `update ${t} set state = 'completed' where tree_id = $1 and not (depth = 4 and key = '3');`,
      [root.id],
    )
    await engine.database.pool.query(`update ${t} set state = 'failed', error = 'lost' where depth = 4 and key = '3'`)
    const { outline } = (await readTree(engine.database, root.id))!
    const { planTree } = await import('../../src/cli/tree/plan.ts')
    const rows = [...planTree(outline, 30)].flatMap(([, below]) => below)
    const shown = rows.flatMap((row) => ('job' in row ? [`${row.job.key} ${row.job.state}`] : []))
    expect(shown).toEqual(expect.arrayContaining(['x completed', 'y completed', 'z completed', '3 failed']))
    expect(outline.counts).toMatchObject({ total: 1209, failed: 1, completed: 1208 })
  })

  test('ends when the root is deleted', async () => {
    const worker = await engineOf({ start: false })
    const root = await worker.engine.enqueue({ type: 'nobody' })
    const { screen, end } = await watching(worker, root.id, { columns: 80, rows: 5 })
    await soon(() => screen.frames.length > 0)
    await worker.engine.deleteJob(root.id)
    expect(await end).toBeUndefined()
    expect(screen.frames.at(-1)).toEqual(['The root of this tree has been deleted.'])
  })

  test('says when the database is away, and goes on when it is back', async () => {
    const worker = await engineOf({ start: false })
    const root = await worker.engine.enqueue({ type: 'nobody', key: 'k' })
    const link = await createLink(worker.test.connectionString)
    open.push(link)
    const { screen, stopping, end } = await watching(worker, root.id, { columns: 80, rows: 5 }, link.url)
    const last = () => screen.frames.at(-1) ?? []
    await soon(() => last().includes('· nobody k queued'))
    await link.cut()
    await soon(() => last().includes('The database cannot be reached; trying again.'))
    expect(last()).toContain('· nobody k queued')
    await link.mend()
    await worker.engine.pauseJob(root.id)
    await soon(() => last().includes('‖ nobody k paused'))
    expect(last().join()).not.toContain('cannot be reached')
    stopping.abort()
    expect((await end)?.root.state).toBe('paused')
  })
})

/** A wire to the database that can be cut. */
async function createLink(connectionString: string) {
  const target = new URL(connectionString)
  const sockets = new Set<Socket>()
  let server: Server
  let port = 0
  const mend = () =>
    new Promise<void>((resolve) => {
      server = createServer((socket) => {
        const other = createConnection(Number(target.port), target.hostname)
        for (const end of [socket, other]) {
          sockets.add(end)
          end.on('error', () => {}).on('close', () => sockets.delete(end))
        }
        socket.pipe(other).pipe(socket)
      })
      server.listen(port, '127.0.0.1', resolve)
    })
  const cut = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      for (const socket of sockets) socket.destroy()
    })
  await mend()
  port = (server!.address() as { port: number }).port
  const url = new URL(target)
  url.host = `127.0.0.1:${port}`
  return { url: url.href, cut, mend, close: () => cut() }
}
