import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Api, startApi } from '../api/api.ts'

// The program of docs/api.md, against a server.

const run = promisify(execFile)
const ROOT = fileURLToPath(new URL('../../', import.meta.url))

let api: Api
let folder: string
let page: string
beforeAll(async () => {
  api = await startApi()
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-api-page-'))
  page = await readFile(path.join(ROOT, 'docs/api.md'), 'utf8')
  const code = [...page.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, block]) => block).join('\n')
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }')
  const config = { extends: path.join(ROOT, 'tsconfig.json'), include: ['*.ts'] }
  await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
  await writeFile(path.join(folder, 'api.ts'), `${code}\nexport {}\n`)
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  await api.stop()
})

test('its code compiles', { timeout: 120_000 }, async () => {
  const compiler = path.join(ROOT, 'node_modules/.bin/tsc')
  const { stdout } = await run(compiler, ['--noEmit', '-p', folder]).catch((error) => error as { stdout: string })
  expect(stdout).toBe('')
})

test('its code runs, and prints what it says', { timeout: 120_000 }, async () => {
  const said = [...page.matchAll(/^\/\/ → (.*)$/gm)].map(([, line]) => line)
  expect(said.length).toBeGreaterThan(5)
  const { stdout } = await run(
    process.execPath,
    ['--import', import.meta.resolve('tsx'), path.join(folder, 'api.ts')],
    { env: { ...process.env, COPPICE_URL: `${api.server.url}/graphql` } },
  )
  expect(stdout.trimEnd().split('\n')).toEqual(said)
})

test('every field of a filter is spoken of', async () => {
  const { __type } = await api.ask('{ __type(name: "JobFilter") { inputFields { name } } }')
  const fields: { name: string }[] = __type.inputFields
  expect(fields.length).toBeGreaterThan(10)
  const unsaid = fields.filter(({ name }) => !page.includes(`\`${name}\``) && !page.includes(`\`${name}:`))
  expect(unsaid.map(({ name }) => name)).toEqual(['parentWave'])
})
