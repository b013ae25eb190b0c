import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { etl } from '../../examples/etl.ts'
import { shell } from './independent.ts'
import { useExamples } from './use-examples.ts'

describe('etl', { timeout: 120_000 }, () => {
  const examples = useExamples()
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-etl-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  const row = (id: number) =>
    JSON.stringify({
      id,
      customer: ` c${id % 7} `,
      amount: id % 2 ? id / 4 : `${id}.5`,
      at: '2024-02-29T23:30:00-02:00',
    })

  async function load(name: string, lines: string[], chunkLines: number) {
    const source = path.join(folder, name)
    const out = path.join(folder, `${name}-out`)
    await writeFile(source, lines.join('\n') + (lines.length % 2 ? '\n' : ''))
    const handle = await examples.engine.enqueue(etl.with({ path: source, out, chunkLines }))
    return { out, end: await examples.engine.waitFor(handle, { timeoutMs: 100_000 }), id: handle.id }
  }

  test('loads every good row once, however the file is cut, and tells each bad one', async () => {
    const lines = Array.from({ length: 4001 }, (_, id) => row(id))
    const bad = [
      '{',
      '{}',
      row(-1).replace('-0.25', '-1'),
      row(1).replace('2024-02-29', '2023-02-29'),
      '',
      row(5).slice(1),
    ]
    for (const [index, text] of bad.entries()) lines[index * 600] = text
    const good = lines.length - bad.length
    const cents = lines.reduce((sum, _line, id) => {
      return id % 600 === 0 && id / 600 < bad.length ? sum : sum + Math.round((id % 2 ? id / 4 : id + 0.5) * 100)
    }, 0)
    for (const chunkLines of [1000, 37, 5000]) {
      const { end, out } = await load(`orders-${chunkLines}`, lines, chunkLines)
      expect(end).toMatchObject({
        state: 'completed',
        result: { loaded: good, cents, bad: bad.length, failedChunks: [] },
      })
      if (end.state !== 'completed') throw new Error('unreachable')
      expect(end.result.badRows.map(({ line }) => line)).toEqual(bad.map((_, index) => index * 600 + 1))
      for (const { reason } of end.result.badRows) expect(reason.length).toBeGreaterThan(5)
      expect(Number(await shell('cat part-*.jsonl | sort -u | wc -l', out))).toBe(good)
      const [first] = (await readFile(path.join(out, 'part-1.jsonl'), 'utf8')).split('\n')
      expect(JSON.parse(first!)).toEqual({ id: 1, customer: 'c1', cents: 25, day: '2024-03-01' })
      // Nothing is left half written.
      const parts = await readdir(out)
      expect(parts).toHaveLength(Math.ceil(lines.length / chunkLines))
      expect(parts.every((name) => /^part-\d+\.jsonl$/.test(name))).toBe(true)
    }
  })

  test('bears one chunk in ten that is rubbish, and says which; not two', async () => {
    const lines = Array.from({ length: 100 }, (_, id) => row(id))
    lines.fill('rubbish', 30, 40)
    const { end, out } = await load('borne', lines, 10)
    expect(end).toMatchObject({
      state: 'completed',
      result: {
        loaded: 90,
        bad: 0,
        failedChunks: [{ firstLine: 31, reason: '10 of 10 rows are bad, line 31: not JSON' }],
      },
    })
    expect(await readdir(out)).toHaveLength(9)
    lines.fill('rubbish', 50, 60)
    const { end: failed, id } = await load('too-much', lines, 10)
    expect(failed).toMatchObject({ state: 'failed', errorCode: 'CHILD_FAILED' })
    expect((await examples.engine.job(id))?.phase).toBe('ingest')
  })

  test('an empty file is loaded; one that is not there is an error', async () => {
    expect((await load('empty', [], 10)).end).toMatchObject({ result: { loaded: 0, bad: 0 } })
    const handle = await examples.engine.enqueue(etl.with({ path: path.join(folder, 'nowhere'), out: folder }))
    expect(await examples.engine.waitFor(handle)).toMatchObject({ state: 'failed', errorCode: 'NOT_FOUND' })
  })
})
