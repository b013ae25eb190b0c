import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CliError } from '../../src/cli/cli-error.ts'
import { loadJobs } from '../../src/cli/load-jobs.ts'

const library = fileURLToPath(new URL('../../src/index.ts', import.meta.url))

describe('loadJobs', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-jobs-'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  async function load(name: string, source: string): Promise<string[]> {
    const file = path.join(folder, name)
    await writeFile(file, source.replaceAll('LIBRARY', JSON.stringify(library)))
    return (await loadJobs(file)).map(({ type }) => type)
  }

  const define = (type: string) => `defineJob({ type: '${type}' }, { run() {} })`

  test('finds definitions by any name, in arrays and in a default export, each once, and nothing else', async () => {
    const types = await load(
      'all.ts',
      `import { declareJob, defineJob } from LIBRARY
       export const one = ${define('one')}
       export const many: unknown[] = [${define('two')}, one, 7, null]
       export const contract = declareJob({ type: 'contract' })
       export const other = 'text'
       export default { three: ${define('three')}, nested: [${define('four')}] }`,
    )
    expect(types.sort()).toEqual(['four', 'one', 'three', 'two'])
  })

  test('takes a default export that is a definition, or an array of such', async () => {
    expect(await load('one.mjs', `import { defineJob } from LIBRARY\nexport default ${define('one')}`)).toEqual(['one'])
    const array = `import { defineJob } from LIBRARY\nexport default [${define('a')}, ${define('b')}]`
    expect(await load('array.mjs', array)).toEqual(['a', 'b'])
  })

  test('finds every example', async () => {
    const examples = fileURLToPath(new URL('../../examples/index.ts', import.meta.url))
    const types = (await loadJobs(examples)).map(({ type }) => type)
    expect(types.sort().join(' ')).toBe(
      'agent agent-tool crawl digest-file digest-folder etl etl-chunk flaky media noop ' +
        'pipeline pipeline-count pipeline-locate pipeline-merge word-count word-count-part',
    )
  })

  test.each([
    ['empty.ts', 'export const x = 1', /exports no job definitions/],
    ['broken.mjs', 'export const = 1', /broken\.mjs does not load: /],
    ['throws.mjs', 'throw new Error("no key given")', /does not load: no key given$/],
    ['missing.mjs', 'import "no-such-package-at-all"', /does not load: .*no-such-package-at-all/],
    [
      'twice.ts',
      `import { defineJob } from LIBRARY\nexport const a = ${define('same')}\nexport const b = ${define('same')}`,
      /two definitions of the job type same/,
    ],
  ])('refuses %s with what is wrong', async (name, source, message) => {
    const error = await load(name, source).catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(CliError)
    expect((error as CliError).message).toMatch(message)
    expect((error as CliError).exitCode).toBe(1)
  })

  test('refuses a path where there is no file', async () => {
    await expect(loadJobs(path.join(folder, 'nowhere.ts'))).rejects.toThrow(
      /There is no module of jobs at .*nowhere\.ts/,
    )
    await expect(loadJobs(folder)).rejects.toThrow(/There is no module of jobs/)
  })
})
