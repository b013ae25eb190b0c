import { createHash } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { media } from '../../examples/media.ts'
import { envOf, killAll, type Running, start } from '../cli/run.ts'
import { createTestEngine } from '../support/engine.ts'
import { until } from '../support/until.ts'
import { useExamples } from './use-examples.ts'

/** A picture of its own, and its grey values by another way of reckoning. */
function picture(width: number, height: number) {
  const header = Buffer.from(`P6\n# made by a test\n${width} ${height}\n255\n`)
  const colours = Buffer.alloc(width * height * 3)
  for (let at = 0; at < colours.length; at++) colours[at] = (at * 31 + (at >> 7) * 17) % 256
  const greys = Buffer.alloc(width * height)
  for (let at = 0; at < greys.length; at++) {
    const [red, green, blue] = colours.subarray(at * 3, at * 3 + 3) as unknown as [number, number, number]
    greys[at] = Math.round(0.299 * red + 0.587 * green + 0.114 * blue)
  }
  return {
    file: Buffer.concat([header, colours]),
    grey: Buffer.concat([Buffer.from(`P5\n${width} ${height}\n255\n`), greys]),
    greys,
  }
}

const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')
const mean = (bytes: Buffer) => bytes.reduce((sum, byte) => sum + byte, 0) / bytes.length

describe('media', { timeout: 180_000 }, () => {
  const examples = useExamples()
  let folder: string
  const workers: Running[] = []
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-media-'))
  })
  afterAll(async () => {
    await killAll(workers)
    await rm(folder, { recursive: true, force: true })
  })

  test('makes the same picture whatever the size of its blocks, and tells how far it is', async () => {
    const { file, grey, greys } = picture(301, 103)
    const source = path.join(folder, 'small.ppm')
    await writeFile(source, file)
    for (const blockRows of [1, 10, 1000]) {
      const out = path.join(folder, `small-${blockRows}.pgm`)
      const handle = await examples.engine.enqueue(media.with({ path: source, out, blockRows }))
      const end = await examples.engine.waitFor(handle, { timeoutMs: 100_000 })
      expect(end).toMatchObject({ state: 'completed', result: { width: 301, height: 103, resumedAt: 0 } })
      if (end.state === 'completed') expect(end.result.meanGrey).toBeCloseTo(mean(greys), 9)
      expect(digest(await readFile(out))).toBe(digest(grey))
      expect((await examples.engine.job(handle.id))?.progress).toEqual({ current: 103, total: 103, message: 'rows' })
    }
  })

  test('refuses what is no picture, or is cut off', async () => {
    const { file } = picture(20, 20)
    for (const [name, bytes] of [
      ['text', Buffer.from('Hello')],
      ['cut', file.subarray(0, -1)],
    ] as const) {
      const source = path.join(folder, name)
      await writeFile(source, bytes)
      const handle = await examples.engine.enqueue(media.with({ path: source, out: path.join(folder, `${name}.pgm`) }))
      expect(await examples.engine.waitFor(handle)).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
    }
  })

  test('goes on where it stopped when its worker is killed with -9', async () => {
    const { file, grey, greys } = picture(2000, 2000)
    const source = path.join(folder, 'large.ppm')
    const out = path.join(folder, 'large.pgm')
    await writeFile(source, file)
    // A database without the workers of the other tests: only the processes started here run the job.
    const { engine, test: database, close } = await createTestEngine({ start: false })
    try {
      const work = () => {
        const args = ['work', '--jobs', 'examples/index.ts', '--heartbeat', '300ms']
        workers.push(start(args, envOf(database)))
        return workers.at(-1)!
      }
      const doomed = work()
      const handle = await engine.enqueue(media.with({ path: source, out, blockRows: 2 }))
      const rowSaved = async () => ((await engine.job(handle.id))?.checkpoint as { row: number } | null)?.row ?? 0
      await until(async () => (await rowSaved()) >= 50, { timeout: 60_000 })
      doomed.child.kill('SIGKILL')
      await doomed.ended
      const row = await rowSaved()
      expect(row).toBeLessThan(2000)
      expect((await engine.job(handle.id))?.state).toBe('running')
      work()
      const end = await engine.waitFor(handle, { timeoutMs: 120_000 })
      expect(end).toMatchObject({ state: 'completed', result: { height: 2000 } })
      if (end.state !== 'completed') throw new Error('unreachable')
      // One more block may have been on its way to the database.
      expect([row, row + 2]).toContain(end.result.resumedAt)
      expect(end.result.meanGrey).toBeCloseTo(mean(greys), 9)
      expect(await engine.job(handle.id)).toMatchObject({ attempt: 2, retryCount: 1 })
      expect(digest(await readFile(out))).toBe(digest(grey))
    } finally {
      await killAll(workers.splice(0))
      await close()
    }
  })
})
