import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'

// Who may import whom: cli, server -> schema -> resolvers -> engine -> db, never upwards. What users test their jobs with
// stands beside all that, on the engine.

const SRC = path.resolve(import.meta.dirname, '../src')

/** Rooms from the top down; a room may import itself and those of a higher number. */
const LAYERS: Record<string, number> = {
  cli: 0,
  server: 0,
  schema: 1,
  settings: 1.5,
  resolvers: 2,
  testing: 2.5,
  engine: 3,
  db: 4,
}

/** What runs in browsers, and what of the rest it may import; see test/client/browser.test.ts. */
const CLIENT = 'client'
const CLIENT_MAY_IMPORT = ['engine/watch/stoppable.ts']

/** Files beside the rooms, and the rooms that they may import. */
const ENTRY_POINTS: Record<string, readonly string[]> = {
  'cli.ts': ['cli'],
  'index.ts': ['engine', 'db'],
  'config.ts': ['settings', 'engine', 'db'],
}

/** What the engine and the database know nothing of. */
const FOREIGN = [/^graphql/, /^@graphql/, /^@pothos\//, /^(node:)?https?2?$/, /^ws$/, /^dataloader$/, /^commander$/]

interface Import {
  from: string
  to: string
}

// Statements that begin a line, over several lines too, and import() anywhere: in a type as well.
const SPECIFIERS =
  /^[ \t]*(?:import|export)\b[^'"`;=]*?\bfrom\s*['"]([^'"]+)['"]|^[ \t]*import\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm

/** What a file imports, exports from or import()s. */
function importsOf(text: string): string[] {
  return [...text.matchAll(SPECIFIERS)].map(([, from, bare, call]) => (from ?? bare ?? call)!)
}

async function allImports(): Promise<Import[]> {
  const files = (await readdir(SRC, { recursive: true })).filter((file) => file.endsWith('.ts'))
  const all = await Promise.all(
    files.map(async (from) => {
      const found = importsOf(await readFile(path.join(SRC, from), 'utf8'))
      return found.map((specifier) => ({
        from,
        to: specifier.startsWith('.') ? path.join(path.dirname(from), specifier) : specifier,
      }))
    }),
  )
  return all.flat()
}

/** What is wrong with an import; undefined if nothing. */
function complaint({ from, to }: Import): string | undefined {
  const room = from.includes(path.sep) ? from.split(path.sep)[0]! : undefined
  const inside = to.endsWith('.ts')
  if (!inside) {
    const below = room === 'engine' || room === 'db'
    return below && FOREIGN.some((foreign) => foreign.test(to)) ? `${from} must know nothing of ${to}` : undefined
  }
  const target = to.includes(path.sep) ? to.split(path.sep)[0]! : undefined
  if (target === undefined) return to === 'config.ts' && room === 'cli' ? undefined : `${from} imports ${to}`
  if (room === CLIENT) {
    return target === CLIENT || CLIENT_MAY_IMPORT.includes(to) ? undefined : `${from} must not import ${to}`
  }
  if (!(target in LAYERS)) return `${from} imports from a room that nobody knows: ${to}`
  if (room === undefined) {
    return ENTRY_POINTS[from]?.includes(target) ? undefined : `${from} must not import ${to}`
  }
  if (!(room in LAYERS)) return `${from} is in a room that nobody knows`
  if (room === target) return undefined
  if (target === 'testing') return `${from} must not import ${to}`
  // The commands start the server; nothing else imports either of them.
  if (target === 'cli' || (target === 'server' && room !== 'cli')) return `${from} must not import ${to}`
  return LAYERS[target]! >= LAYERS[room]! ? undefined : `${from} imports upwards: ${to}`
}

test('imports go downwards only, and the engine knows neither GraphQL nor HTTP', async () => {
  const imports = await allImports()
  expect(imports.length).toBeGreaterThan(200)
  expect(imports.map(complaint).filter((text) => text !== undefined)).toEqual([])
})

test('what is forbidden is found', () => {
  const wrong: [string, string][] = [
    ['db/database.ts', 'engine/job.ts'],
    ['engine/claim.ts', 'resolvers/context.ts'],
    ['engine/claim.ts', 'graphql'],
    ['engine/feed/hub.ts', 'node:http'],
    ['db/database.ts', 'ws'],
    ['resolvers/query.ts', 'schema/builder.ts'],
    ['schema/index.ts', 'server/yoga.ts'],
    ['server/server.ts', 'cli/main.ts'],
    ['resolvers/query.ts', 'cli/main.ts'],
    ['index.ts', 'resolvers/context.ts'],
    ['engine/claim.ts', 'index.ts'],
    ['resolvers/query.ts', 'testing/drain.ts'],
    ['testing/drain.ts', 'resolvers/query.ts'],
    ['attic/old.ts', 'db/database.ts'],
    ['client/client.ts', 'engine/engine.ts'],
    ['engine/claim.ts', 'client/client.ts'],
    ['index.ts', 'client/client.ts'],
  ]
  for (const [from, to] of wrong) expect(complaint({ from, to }), `${from} -> ${to}`).toBeDefined()
  const right: [string, string][] = [
    ['cli/serve.ts', 'server/server.ts'],
    ['cli/serve.ts', 'engine/engine.ts'],
    ['server/yoga.ts', 'schema/index.ts'],
    ['schema/job.ts', 'resolvers/job-fields.ts'],
    ['resolvers/query.ts', 'engine/reads/job-page.ts'],
    ['engine/claim.ts', 'db/database.ts'],
    ['testing/drain.ts', 'engine/engine.ts'],
    ['engine/claim.ts', 'pg'],
    ['client/client.ts', 'client/sse.ts'],
    ['client/client.ts', 'engine/watch/stoppable.ts'],
    ['server/server.ts', 'node:http'],
  ]
  for (const [from, to] of right) expect(complaint({ from, to }), `${from} -> ${to}`).toBeUndefined()
})

test('imports are found in every form', () => {
  const text = `
    import {
      a,
    } from './a.ts'
    import type { B } from './b.ts'
    export * from './c.ts'
    export type { D } from './d.ts'
    const e = await import('./e.ts')
    let f: import('./f.ts').F
    import './g.ts'
    // import './comment.ts'
    const text = "import './text.ts'"
  `
  expect(importsOf(text)).toEqual(['./a.ts', './b.ts', './c.ts', './d.ts', './e.ts', './f.ts', './g.ts'])
})
