import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { codeBlocksOf, writeCodeBlocks } from '../support/code-blocks.ts'

test('the tests in docs/testing.md pass as they stand there', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-docs-'))
  try {
    const files = await writeCodeBlocks(await codeBlocksOf('testing.md'), folder)
    expect(files.map((file) => path.basename(file))).toEqual(['jobs.ts', 'run-phase.test.ts', 'engine.test.ts'])
    const tests = files.filter((file) => file.endsWith('.test.ts'))
    const args = ['--import', import.meta.resolve('tsx'), '--test', '--test-reporter=tap', ...tests]
    // Told apart from the runner that this runs in.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env
    const { stdout } = await promisify(execFile)(process.execPath, args, { env: { ...env, TMPDIR: folder } }).catch(
      (error: { stdout: string; stderr: string }) => {
        throw new Error(`${error.stdout}\n${error.stderr}`)
      },
    )
    expect(stdout).toMatch(/^# pass 7$/m)
    expect(stdout).toMatch(/^# fail 0$/m)
    // Nothing is left of the throw-away database.
    expect((await readdir(folder)).filter((name) => name.startsWith('coppice-testing-'))).toEqual([])
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}, 120_000)
