import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmod, cp, link, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { digestFile, digestFolder } from '../../examples/digest-folder.ts'
import { toPathPayload } from '../../examples/path.ts'
import { type Figures, figuresOf, hasTool, shell } from './independent.ts'
import { useExamples } from './use-examples.ts'

const packages = fileURLToPath(new URL('../../node_modules', import.meta.url))

describe('digest-folder', { timeout: 180_000 }, () => {
  const examples = useExamples()
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-digest-'))
    await chmod(folder, 0o755)
  })
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true })
  })

  async function digest(target: string): Promise<Figures> {
    const handle = await examples.engine.enqueue(digestFolder.with({ path: target }))
    const end = await examples.engine.waitFor(handle, { timeoutMs: 170_000 })
    if (end.state !== 'completed') throw new Error(JSON.stringify(end))
    return end.result
  }

  async function make(name: string): Promise<string> {
    const made = path.join(folder, name)
    await mkdir(made)
    return made
  }

  test('agrees with another tool on thousands of files in hundreds of folders', async () => {
    const copy = await make('packages')
    for (const name of ['@graphql-tools', 'kysely']) {
      await cp(path.join(packages, name), path.join(copy, name), { recursive: true })
    }
    const figures = await digest(copy)
    expect(figures).toEqual(await figuresOf(copy))
    expect(figures.files).toBeGreaterThan(2000)
    expect(String(figures.files)).toBe(await shell('find . -type f | wc -l', copy))
    expect(String(figures.bytes)).toBe(await shell('cat $(find . -type f) | wc -c', copy))
  })

  test('agrees with the one line of shell in its description, where there is one to run it', async () => {
    const flat = await make('flat')
    for (const name of ['b', 'a', '-n', 'B', 'z\nz', 'ü', "it's"])
      await writeFile(path.join(flat, name), randomBytes(100))
    const figures = await digest(flat)
    expect(figures).toEqual(await figuresOf(flat))
    if (!(await hasTool('sha256sum'))) return
    const line = `find . -maxdepth 1 -type f -printf '%f\\0' | LC_ALL=C sort -z | xargs -0 sha256sum -z -- | sha256sum`
    expect(`${figures.sha256}  -`).toBe(await shell(line, flat))
  })

  test('takes any name there can be, empty folders, and what is no file', async () => {
    const odd = await make('odd')
    const names = [
      'line\nfeed',
      'tab\t"quoted" \'twice\'',
      '\\',
      '-rf',
      ' ',
      '...',
      'ünïcödé',
      '学校',
      '👩‍👩‍👧',
      '\ufeffbom',
      '$(id)',
      'base64',
    ]
    for (const name of names) {
      await writeFile(path.join(odd, name), name)
      await mkdir(path.join(odd, `${name} folder`))
      await writeFile(path.join(odd, `${name} folder`, name), 'inner')
    }
    // Names of bytes that are no UTF-8: a file, and a folder with one in it.
    const bytes = (...parts: (string | number[])[]) => Buffer.concat(parts.map((part) => Buffer.from(part as string)))
    await writeFile(bytes(odd, '/latin1 caf', [0xe9]), 'x')
    await mkdir(bytes(odd, '/', [0xff, 0xfe]))
    await writeFile(bytes(odd, '/', [0xff, 0xfe], '/in ', [0x80]), 'y')
    await mkdir(path.join(odd, 'empty', 'of', 'anything'), { recursive: true })
    await writeFile(path.join(odd, 'no bytes'), '')
    await writeFile(path.join(odd, 'many bytes'), randomBytes(3 * 256 * 1024 + 1))
    await link(path.join(odd, 'many bytes'), path.join(odd, 'the same bytes'))
    await symlink('many bytes', path.join(odd, 'link to a file'))
    await symlink('..', path.join(odd, 'empty', 'link to its parent'))
    await symlink('nowhere', path.join(odd, 'link to nothing'))
    execFileSync('mkfifo', [path.join(odd, 'pipe')])
    const socket = createServer().listen(path.join(odd, 'socket'))

    const figures = await digest(odd)
    expect(figures).toEqual(await figuresOf(odd))
    expect(figures).toMatchObject({ files: 2 * names.length + 5, links: 3, skipped: 2, unreadable: 0 })
    socket.close()
  })

  test('leaves out what it may not read, and says how much that is', async () => {
    const guarded = await make('guarded')
    await writeFile(path.join(guarded, 'open'), 'open')
    await writeFile(path.join(guarded, 'secret'), 'secret')
    await mkdir(path.join(guarded, 'inner', 'closed'), { recursive: true })
    await writeFile(path.join(guarded, 'inner', 'secret'), 'secret')
    await writeFile(path.join(guarded, 'inner', 'closed', 'unseen'), 'unseen')
    for (const name of ['secret', 'inner/secret', 'inner/closed']) await chmod(path.join(guarded, name), 0)
    // Everything that a digest needs is loaded before this process becomes somebody who may not read it.
    await digest(await make('warm'))
    await withoutPrivileges(async () => {
      const figures = await digest(guarded)
      expect(figures).toEqual(await figuresOf(guarded))
      expect(figures).toMatchObject({ files: 1, bytes: 4, unreadable: 3 })
    })
    // Each is a failure of its own, at the first attempt, that says why.
    const { rows: failed } = await examples.engine.database.pool.query<{ error: string }>(
      `select key, error_code, error, attempt from ${examples.engine.database.tables.job} where state = 'failed' order by key, depth`,
    )
    expect(failed).toMatchObject([
      { key: 'closed', error_code: 'PARSE', attempt: 1 },
      { key: 'secret', error_code: 'PARSE', attempt: 1 },
      { key: 'secret', error_code: 'PARSE', attempt: 1 },
    ])
    for (const { error } of failed) expect(error).toMatch(/^EACCES: permission denied/)
    await chmod(path.join(guarded, 'inner', 'closed'), 0o755)
  })

  test('fails where there is nothing to digest', async () => {
    const file = path.join(folder, 'a file')
    await writeFile(file, '')
    for (const target of [path.join(folder, 'nowhere'), file]) {
      const end = await examples.engine.waitFor(await examples.engine.enqueue(digestFolder.with({ path: target })))
      expect(end).toMatchObject({ state: 'failed', errorCode: 'NOT_FOUND' })
    }
    execFileSync('mkfifo', [path.join(folder, 'a pipe')])
    const pipe = await examples.engine.enqueue(digestFile.with({ path: path.join(folder, 'a pipe') }))
    expect(await examples.engine.waitFor(pipe)).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('does not pass over a failure that is not the file system’s', async () => {
    const target = await make('cancelled')
    for (const name of ['a', 'b']) await writeFile(path.join(target, name), name)
    const children = ['a', 'b'].map((name) =>
      digestFile.with(toPathPayload(Buffer.from(path.join(target, name))), { key: name }),
    )
    // Enqueued as a tree, paused by a time far ahead, so that a child can be cancelled before it runs.
    const far = new Date(Date.now() + 3_600_000)
    const root = await examples.engine.enqueue(
      digestFolder.with({ path: target }, { children: [children[0]!, { ...children[1]!, runAt: far }] }),
    )
    const { rows } = await examples.engine.database.pool.query<{ id: string }>(
      `select id from ${examples.engine.database.tables.job} where parent_id = $1 and key = 'b'`,
      [root.id],
    )
    await examples.engine.cancelJob(rows[0]!.id, { reason: 'not wanted' })
    expect(await examples.engine.waitFor(root, { timeoutMs: 30_000 })).toMatchObject({
      state: 'failed',
      errorCode: 'CHILD_FAILED',
      error: 'No digest of b: cancelled (requested)',
    })
  })

  test('digests 20,000 files in one folder', async () => {
    const wide = await make('wide')
    for (let start = 0; start < 20_000; start += 500) {
      await Promise.all(
        Array.from({ length: 500 }, (_, i) => writeFile(path.join(wide, `file ${start + i}`), String(start + i))),
      )
    }
    const figures = await digest(wide)
    expect(figures).toEqual(await figuresOf(wide))
    expect(figures.files).toBe(20_000)
  })
})

/** Root may read everything: runs as nobody for a while. Anybody else stays who they are. */
async function withoutPrivileges(use: () => Promise<void>): Promise<void> {
  if (process.getuid?.() !== 0) return use()
  process.seteuid!(65534)
  try {
    await use()
  } finally {
    process.seteuid!(0)
  }
}
