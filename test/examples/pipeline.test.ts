import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { pipeline } from '../../examples/pipeline.ts'
import { shell } from './independent.ts'
import { useExamples } from './use-examples.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

describe('pipeline', { timeout: 120_000 }, () => {
  const examples = useExamples()
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-pipeline-'))
    await mkdir(path.join(folder, 'real'))
    await mkdir(path.join(folder, 'empty'))
    for (const name of ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'docs/architecture.md']) {
      await copyFile(path.join(ROOT, name), path.join(folder, 'real', path.basename(name)))
    }
    await writeFile(path.join(folder, 'real', 'odd.txt'), 'constructor Constructor zebra')
    await writeFile(path.join(folder, 'real', 'ignored.bin'), 'zebra zebra')
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  async function through(payload: Parameters<typeof pipeline.with>[0]) {
    const handle = await examples.engine.enqueue(pipeline.with(payload))
    const end = await examples.engine.waitFor(handle, { timeoutMs: 100_000 })
    if (end.state !== 'completed') throw new Error(JSON.stringify(end))
    return { ...end.result, id: handle.id }
  }

  test('finds what other tools find, each stage made from what the last one came to', async () => {
    const real = path.join(folder, 'real')
    const { files, letters, id } = await through({ folder: real, minLength: 5 })
    expect(files).toBe(5)
    // The first of each letter in the list by number, then by word.
    const table = await shell(
      `cat *.md *.txt | tr 'A-Z' 'a-z' | tr -c 'a-z' '\\n' | grep -E '.{5}' | sort | uniq -c |
       sort -k1,1nr -k2,2 | awk '!seen[substr($2, 1, 1)]++ { print $2, $1 }' | sort`,
      real,
    )
    expect(letters.map(({ word, count }) => `${word} ${count}`)).toEqual(table.split('\n'))
    for (const { letter, word, places } of letters) {
      expect(word[0]).toBe(letter)
      const named = (await readdir(real)).filter((name) => !name.endsWith('.bin')).sort()
      const found = []
      for (const name of named) {
        const text = await readFile(path.join(real, name), 'utf8')
        if (new RegExp(`(?<![a-z])${word}(?![a-z])`, 'i').test(text)) found.push(name)
      }
      expect(places, word).toEqual(found)
    }
    const { rows } = await examples.test.pool.query(
      `select parent_wave, type, count(*)::int as n from ${examples.test.schema}.job
       where parent_id = $1 group by 1, 2 order by 1`,
      [id],
    )
    expect(rows).toEqual([
      { parent_wave: 1, type: 'pipeline-count', n: 5 },
      { parent_wave: 2, type: 'pipeline-merge', n: letters.length },
      { parent_wave: 3, type: 'pipeline-locate', n: letters.length },
    ])
    expect(await examples.engine.job(id)).toMatchObject({ wave: 3, openChildren: 0 })
  })

  test('goes through its stages with nothing in them', async () => {
    const { files, letters, id } = await through({ folder: path.join(folder, 'empty') })
    expect({ files, letters }).toEqual({ files: 0, letters: [] })
    expect(await examples.engine.job(id)).toMatchObject({ wave: 3 })
  })

  test('fails when a part of it does: a figure with a part missing would be a wrong one', async () => {
    const handle = await examples.engine.enqueue(
      pipeline.with(
        { folder },
        { children: [{ type: 'pipeline-count', payload: { file: path.join(folder, 'nowhere'), minLength: 1 } }] },
      ),
    )
    expect(await examples.engine.waitFor(handle)).toMatchObject({ state: 'failed', errorCode: 'CHILD_FAILED' })
  })
})
