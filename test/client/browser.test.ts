import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const ENTRY = path.join(ROOT, 'src/client/index.ts')

/** Every file that a browser would load, and the packages that they name. */
async function loadedFrom(entry: string) {
  const files = new Set([entry])
  const packages = new Set<string>()
  for (const file of files) {
    const text = await readFile(file, 'utf8')
    for (const [, from] of text.matchAll(/(?:\bfrom|^import) '([^']+)'$/gm)) {
      if (from!.startsWith('.')) files.add(path.resolve(path.dirname(file), from!))
      else packages.add(from!)
    }
  }
  return { files: [...files].map((file) => path.relative(ROOT, file)), packages: [...packages] }
}

test('the client loads nothing but its own files, graphql-ws and an iterator that imports nothing', async () => {
  const { files, packages } = await loadedFrom(ENTRY)
  expect(packages).toEqual(['graphql-ws'])
  expect(files.filter((file) => !file.startsWith('src/client/'))).toEqual(['src/engine/watch/stoppable.ts'])
  expect(files).toContain('src/client/web-socket.ts')
  let size = 0
  for (const file of files) size += (await readFile(path.join(ROOT, file))).length
  expect(size).toBeLessThan(48_000)
})

test('it compiles with what a browser has, and without what Node has', { timeout: 60_000 }, async () => {
  const args = [
    '--noEmit',
    '--ignoreConfig',
    '--strict',
    '--exactOptionalPropertyTypes',
    '--noUncheckedIndexedAccess',
    'true',
  ]
  args.push('--target', 'es2022', '--lib', 'es2022,dom', '--types', '', '--skipLibCheck')
  args.push('--module', 'nodenext', '--allowImportingTsExtensions', ENTRY)
  const { stdout } = await promisify(execFile)(path.join(ROOT, 'node_modules/.bin/tsc'), args).catch(
    (error) => error as { stdout: string },
  )
  expect(stdout).toBe('')
})

test('the package exports it', async () => {
  const { exports } = JSON.parse(await readFile(path.join(ROOT, 'package.json'), 'utf8'))
  expect(exports['./client']).toEqual({ types: './dist/client/index.d.ts', default: './dist/client/index.js' })
})
