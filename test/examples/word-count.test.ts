import { execFile } from 'node:child_process'
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { wordCount, wordCountPart } from '../../examples/word-count.ts'
import { hasTool, shell } from './independent.ts'
import { useExamples } from './use-examples.ts'

const run = promisify(execFile)

/** Words and the most frequent of them, all of the file at once, by Python where it is. */
const PROGRAM = `
import collections, json, sys
words = open(sys.argv[1], 'rb').read().split()
counts = collections.Counter(w.decode(errors='replace') for w in words if len(w) <= 100)
print(json.dumps({'words': len(words), 'top': sorted(counts.items(), key=lambda c: (-c[1], c[0]))[:int(sys.argv[2])]}))
`

async function countsOf(file: string, top: number): Promise<{ words: number; top: [string, number][] }> {
  const program = `
    const words = require('fs').readFileSync(process.argv[1], 'latin1').split(/[ \\t\\n\\v\\f\\r]+/).filter(Boolean)
    const counts = {}
    for (const w of words) if (w.length <= 100) { const t = Buffer.from(w, 'latin1').toString(); counts['=' + t] = (counts['=' + t] || 0) + 1 }
    const top = Object.entries(counts).map(([w, n]) => [w.slice(1), n]).sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1))
    console.log(JSON.stringify({ words: words.length, top: top.slice(0, process.argv[2]) }))`
  const python = await hasTool('python3')
  const { stdout } = python
    ? await run('python3', ['-c', PROGRAM, file, String(top)])
    : await run(process.execPath, ['-e', program, file, String(top)])
  return JSON.parse(stdout)
}

describe('word-count', { timeout: 180_000 }, () => {
  const examples = useExamples()
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-words-'))
  })
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true })
  })

  async function count(payload: Parameters<typeof wordCount.with>[0]) {
    const end = await examples.engine.waitFor(await examples.engine.enqueue(wordCount.with(payload)), {
      timeoutMs: 170_000,
    })
    if (end.state !== 'completed') throw new Error(JSON.stringify(end))
    const { rows } = await examples.engine.database.pool.query<{ parts: number }>(
      `select child_count as parts from ${examples.engine.database.tables.job} where id = $1`,
      [end.id],
    )
    return { ...end.result, parts: rows[0]!.parts }
  }

  test('agrees with other tools on a large text, however it is cut', async () => {
    const text = fileURLToPath(new URL('../../package-lock.json', import.meta.url))
    const large = path.join(folder, 'large')
    await run('bash', ['-c', 'for i in $(seq 100); do cat "$0"; done > "$1"', text, large])
    const expected = await countsOf(large, 15)
    for (const partBytes of [undefined, 1_000_003, 65_536]) {
      const result = await count({ path: large, top: 15, ...(partBytes !== undefined && { partBytes }) })
      expect(result.words).toBe(expected.words)
      expect(result.bytes).toBe(Number(await shell('wc -c < large', folder)))
      expect(result.exact).toBe(true)
      expect(result.top.map(({ word, count }) => [word, count])).toEqual(expected.top)
      expect(result.parts).toBe(Math.ceil(result.bytes / (partBytes ?? 4 * 1024 * 1024)))
    }
    expect(String(expected.words)).toBe(await shell('wc -w < large', folder))
  })

  test('counts a word across a cut once, in any script, and in a file of no words', async () => {
    const file = path.join(folder, 'small')
    const text = `one two  学校\tnaïve one\n\n${'long'.repeat(40)} one\r\n two`
    await writeFile(file, text)
    const expected = await countsOf(file, 10)
    for (const partBytes of [1, 2, 3, 7, 1000]) {
      const result = await count({ path: file, top: 10, partBytes })
      expect(result).toMatchObject({ words: 8, bytes: Buffer.byteLength(text), exact: true })
      expect(result.top.map(({ word, count }) => [word, count])).toEqual(expected.top)
    }
    await writeFile(file, '')
    expect(await count({ path: file })).toEqual({ words: 0, bytes: 0, top: [], exact: true, parts: 0 })
    await writeFile(file, ' \n ')
    expect(await count({ path: file })).toEqual({ words: 0, bytes: 3, top: [], exact: true, parts: 1 })
  })

  test('takes bytes that are no text', async () => {
    const file = path.join(folder, 'binary')
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * i * 31 + (i >> 3)) % 256))
    await writeFile(file, bytes)
    const expected = await countsOf(file, 5)
    const result = await count({ path: file, partBytes: 4096 })
    expect(result.words).toBe(expected.words)
  })

  test('fails rather than give a sum with a part missing', async () => {
    const file = path.join(folder, 'shrinking')
    await writeFile(file, 'some words in a file that becomes shorter')
    const parts = [0, 10, 20].map((from) =>
      wordCountPart.with({ path: file, from, to: from + 10 }, { key: String(from) }),
    )
    await truncate(file, 15)
    const end = await examples.engine.waitFor(
      await examples.engine.enqueue(wordCount.with({ path: file }, { children: parts })),
    )
    expect(end).toMatchObject({ state: 'failed', errorCode: 'CHILD_FAILED', error: 'The part at byte 10 is failed.' })
  })

  test('says what is wrong with its payload, and with a path that is no file', async () => {
    await expect(examples.engine.enqueue(wordCount.with({ path: '', partBytes: 0 }))).rejects.toMatchObject({
      code: 'VALIDATION',
    })
    const end = await examples.engine.waitFor(await examples.engine.enqueue(wordCount.with({ path: folder })))
    expect(end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })
})
