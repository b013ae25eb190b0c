import { mkdtemp, readFile, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { crawl } from '../../examples/crawl.ts'
import { etl } from '../../examples/etl.ts'
import { media } from '../../examples/media.ts'
import type { ContractJob } from '../../src/index.ts'
import { useExamples } from './use-examples.ts'

describe('the input in examples/data', { timeout: 120_000 }, () => {
  const examples = useExamples()
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-data-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  const run = async (job: ContractJob) =>
    examples.engine.waitFor(await examples.engine.enqueue(job), { timeoutMs: 100_000 })

  test('is loaded by etl, two bad rows told', async () => {
    const end = await run(etl.with({ path: 'examples/data/orders.jsonl', out: path.join(folder, 'out', 'orders') }))
    expect(end).toMatchObject({ state: 'completed', result: { loaded: 58, bad: 2, failedChunks: [] } })
  })

  test('is turned grey by media', async () => {
    const out = path.join(folder, 'out.pgm')
    const end = await run(media.with({ path: 'examples/data/in.ppm', out }))
    expect(end).toMatchObject({ state: 'completed', result: { width: 96, height: 64 } })
    expect((await readFile(out)).subarray(0, 2).toString()).toBe('P5')
  })

  test('is visited by crawl', async () => {
    const end = await run(crawl.with({ site: 'examples/data/site', maxDepth: 3 }))
    expect(end).toMatchObject({
      state: 'completed',
      result: {
        pages: ['about.html', 'docs/guide.html', 'docs/index.html', 'index.html'],
        broken: [{ from: 'about.html', to: 'missing.html' }],
      },
    })
  })
})
