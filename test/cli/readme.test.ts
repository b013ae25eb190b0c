import { execFile } from 'node:child_process'
import { access, readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'
import { settingsTable } from '../../src/config.ts'
import { figuresOf } from '../examples/independent.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { envOf, killAll, ROOT, type Running, start } from './run.ts'

/** A command of the README that asks the API. */
interface Request {
  headers: Record<string, string>
  body: { query: string; variables?: Record<string, unknown> }
}

describe('README.md', () => {
  let readme: string
  let database: TestDatabase
  let serve: Running
  beforeAll(async () => {
    readme = await readFile(path.join(ROOT, 'README.md'), 'utf8')
    database = await createTestDatabase()
    serve = start(['serve', '--jobs', 'examples/index.ts', '--port', '0'], envOf(database))
  })
  afterAll(async () => {
    await killAll([serve])
    await database.drop()
  })

  function requests(): Request[] {
    const commands = readme.matchAll(/^curl -sN? localhost:4000\/graphql ((?:-H '[^']*' )+)-d '([^']*)'$/gm)
    return [...commands].map(([, headers, body]) => ({
      headers: Object.fromEntries(
        [...headers!.matchAll(/-H '([^:]*): ([^']*)'/g)].map(([, name, value]) => [name, value]),
      ),
      body: JSON.parse(body!),
    }))
  }

  async function ask({ headers, body }: Request, signal?: AbortSignal): Promise<Response> {
    const [, url] = await serve.said(/at (\S+\/graphql)/)
    return fetch(url!, { method: 'POST', headers, body: JSON.stringify(body), ...(signal && { signal }) })
  }

  test('its commands that ask the API get what it says', { timeout: 120_000 }, async () => {
    const [begin, tree, events, ...others] = requests()
    expect(others).toEqual([])
    const watching = new AbortController()
    const stream = await ask(events!, watching.signal)
    expect(stream.headers.get('content-type')).toMatch(/^text\/event-stream/)

    const started = await (await ask(begin!)).json()
    const { id } = started.data.enqueueJob.job
    expect(id).toMatch(/^JB_/)
    expect(tree!.body.variables).toEqual({ id: 'JB_...' })
    const request = { ...tree!, body: { ...tree!.body, variables: { id } } }
    const done = await until(
      async () => {
        const { data } = await (await ask(request)).json()
        return data.jobTree.root.state === 'COMPLETED' && data.jobTree
      },
      { timeout: 60_000, interval: 200 },
    )
    const { path: folder } = begin!.body.variables!.payload as { path: string }
    const figures = await figuresOf(path.join(ROOT, folder))
    expect(done.root.result).toEqual(figures)
    expect(figures.files).toBeGreaterThan(100)
    expect(done.counts).toMatchObject({ total: done.counts.completed, open: 0, failed: 0 })
    expect(done.nodes.nodes).toHaveLength(5)

    let seen = ''
    for await (const chunk of stream.body!) {
      seen += Buffer.from(chunk).toString()
      if (seen.includes(`"jobId":"${id}"`)) break
    }
    watching.abort()
    expect(seen).toContain('"kind":"CREATED"')
  })

  test('its example of the library is the file it names, and runs', { timeout: 120_000 }, async () => {
    const file = path.join(ROOT, 'examples/as-a-library.ts')
    const [, block] = /```ts\n([\s\S]*?)```/.exec(readme)!
    expect(block!.replace("'coppice'", "'../src/index.ts'")).toBe(await readFile(file, 'utf8'))
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', import.meta.resolve('tsx'), file], {
      env: { ...process.env, DATABASE_URL: database.connectionString },
    })
    expect(stdout).toBe('385\n')
  })

  test('its settings are those of the program', () => {
    // However wide the columns are set.
    const plain = (text: string) => text.replaceAll(/ +/g, ' ').replaceAll(/-{3,}/g, '---')
    expect(plain(readme)).toContain(plain(settingsTable()))
  })

  test('its commands and flags are there, all of them', () => {
    const { commands } = createProgram()
    const listed = [...readme.matchAll(/^\| `coppice (\S+)([^`]*)` +\|/gm)]
    expect(listed.map(([, name]) => name)).toEqual(commands.map((command) => command.name()))
    for (const [, name, usage] of listed) {
      const command = commands.find((one) => one.name() === name)!
      const flags = command.options.map(({ long }) => long)
      for (const [flag] of usage!.matchAll(/--[a-z-]+/g)) expect(flags).toContain(flag)
      expect(flags).toContain('--json')
    }
  })

  test('its scripts, and those of CONTRIBUTING.md, are in package.json; its links lead somewhere', async () => {
    const scriptsOf = async (folder: string) =>
      Object.keys(JSON.parse(await readFile(path.join(ROOT, folder, 'package.json'), 'utf8')).scripts)
    const scripts = [...(await scriptsOf('.')), ...(await scriptsOf('bench'))]
    const contributing = await readFile(path.join(ROOT, 'CONTRIBUTING.md'), 'utf8')
    const text = readme + contributing
    const named = [...text.matchAll(/npm run (?:-s )?([a-z:-]+)/g)].map(([, script]) => script!)
    expect(named.length).toBeGreaterThan(5)
    for (const script of named) expect(scripts).toContain(script)
    for (const [, link] of text.matchAll(/\]\((?!https:)([^)#]+)\)/g)) {
      await expect(access(path.join(ROOT, link!))).resolves.toBeUndefined()
    }
  })
})
