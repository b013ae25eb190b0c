import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import ts from 'typescript'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

let test: TestDatabase
let folder: string
beforeAll(async () => {
  test = await createTestDatabase()
  // Below node_modules, so that packages are found from there.
  const cache = path.join(ROOT, 'node_modules/.cache')
  await mkdir(cache, { recursive: true })
  folder = await mkdtemp(path.join(cache, 'lease-built-'))
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  await test.drop()
})

/** Compiles a module and all that it imports by path, as the build does, and returns where it went. */
async function build(source: string, done = new Set<string>()): Promise<string> {
  const target = path.join(folder, path.relative(path.join(ROOT, 'src'), source)).replace(/\.ts$/, '.js')
  if (done.has(source)) return target
  done.add(source)
  const text = await readFile(source, 'utf8')
  const { outputText } = ts.transpileModule(text, {
    fileName: source,
    compilerOptions: {
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
      rewriteRelativeImportExtensions: true,
    },
  })
  await mkdir(path.dirname(target), { recursive: true })
  await writeFile(target, outputText)
  for (const [, specifier] of outputText.matchAll(/from ['"](\.[^'"]+)\.js['"]/g)) {
    await build(path.resolve(path.dirname(source), `${specifier}.ts`), done)
  }
  return target
}

it('starts its thread as JavaScript when it is built', async () => {
  const heartbeat = await build(path.join(ROOT, 'src/engine/lease/heartbeat.ts'))
  await build(path.join(ROOT, 'src/engine/lease/heartbeat-thread.ts'))
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }')
  const program = path.join(folder, 'program.js')
  await writeFile(
    program,
    `import { randomUUID } from 'node:crypto'
     import { startHeartbeat } from ${JSON.stringify(heartbeat)}
     const [, , connectionString, schema] = process.argv
     const worker = { id: randomUUID(), host: 'built', pid: process.pid, queues: [], types: [], concurrency: 1,
       intervalMs: 100, schemaVersion: 1 }
     let beats = 0
     const heartbeat = await startHeartbeat({ connectionString, schema, worker }, {
       lost() {}, failing(error) { console.error(error) },
       async beat() {
         beats += 1
         if (beats === 3) { await heartbeat.stop({ removeRow: true }); console.log('beats', beats) }
       } })`,
  )
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [program, test.connectionString, test.schema])
  expect({ stdout, stderr }).toEqual({ stdout: 'beats 3\n', stderr: '' })
  expect((await test.pool.query('select from coppice.worker')).rows).toEqual([])
})
