import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const run = promisify(execFile)

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

it('starts its thread as JavaScript when it is built', async () => {
  const tsc = path.join(ROOT, 'node_modules/typescript/bin/tsc')
  await run(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--noCheck', '--outDir', folder], { cwd: ROOT })
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }')
  const program = path.join(folder, 'program.js')
  await writeFile(
    program,
    `import { randomUUID } from 'node:crypto'
     import { startHeartbeat } from './engine/lease/heartbeat.js'
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
  const { stdout, stderr } = await run(process.execPath, [program, test.connectionString, test.schema])
  expect({ stdout, stderr }).toEqual({ stdout: 'beats 3\n', stderr: '' })
  expect((await test.pool.query('select from coppice.worker')).rows).toEqual([])
})
