import { execFile } from 'node:child_process'
import { access, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { findViolations } from '../support/invariants.ts'

const run = promisify(execFile)
const ROOT = fileURLToPath(new URL('../../', import.meta.url))
/** Pages whose TypeScript is, from top to bottom, one program. */
const PAGES = ['two-phase-jobs', 'failure-retry-cancel']

let folder: string
let database: TestDatabase
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-docs-'))
  database = await createTestDatabase()
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }')
  const config = {
    extends: path.join(ROOT, 'tsconfig.json'),
    include: ['*.ts'],
    compilerOptions: { rewriteRelativeImportExtensions: false },
  }
  await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
  const library = path.join(ROOT, 'src/index.ts')
  for (const page of PAGES) {
    const code = blocksOf(await pageText(page)).join('\n')
    await writeFile(path.join(folder, `${page}.ts`), code.replaceAll("from 'coppice'", `from '${library}'`))
  }
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  const violations = await findViolations(database.pool)
  await database.drop()
  expect(violations).toEqual([])
})

const pageText = (page: string) => readFile(path.join(ROOT, 'docs', `${page}.md`), 'utf8')

function blocksOf(text: string): string[] {
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code]) => code!)
}

test('the code on the pages compiles', { timeout: 120_000 }, async () => {
  const compiler = path.join(ROOT, 'node_modules/.bin/tsc')
  const { stdout } = await run(compiler, ['--noEmit', '-p', folder]).catch((error) => error as { stdout: string })
  expect(stdout).toBe('')
})

test.each(PAGES)('the code of docs/%s.md runs, and prints what it says', { timeout: 180_000 }, async (page) => {
  const said = [...(await pageText(page)).matchAll(/^\/\/ → (.*)$/gm)].map(([, line]) => line)
  expect(said.length).toBeGreaterThan(5)
  const { stdout } = await run(
    process.execPath,
    ['--import', import.meta.resolve('tsx'), path.join(folder, `${page}.ts`)],
    { env: { ...process.env, DATABASE_URL: database.connectionString }, timeout: 170_000 },
  )
  expect(stdout.trimEnd().split('\n')).toEqual(said)
})

test.each([...PAGES, 'cases', 'client', 'explain', 'api'])('the links of docs/%s.md lead somewhere', async (page) => {
  const text = await pageText(page)
  const links = [...text.matchAll(/\]\((?!https:)([^)]+)\)/g)].map(([, link]) => link!)
  expect(links.length).toBeGreaterThan(0)
  for (const link of links) {
    const [file, anchor] = link.split('#') as [string, string | undefined]
    const target = file === '' ? path.join(ROOT, 'docs', `${page}.md`) : path.join(ROOT, 'docs', file)
    await expect(access(target), link).resolves.toBeUndefined()
    if (anchor !== undefined) expect(anchorsOf(await readFile(target, 'utf8')), link).toContain(anchor)
  }
})

/** The anchors that a page's headings get. */
function anchorsOf(text: string): string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} -]/gu, '')
      .replaceAll(' ', '-'),
  )
}
