import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { EXPLAIN_REASONS } from '../../src/engine/explain/explanation.ts'
import { documentedFacts } from '../support/explaining.ts'

test('docs/explain.md has every reason, with what to do, and its facts', async () => {
  const text = await readFile(new URL('../../docs/explain.md', import.meta.url), 'utf8')
  const sections = text.split(/^##+ /m).flatMap((section) => {
    const [, reason, said] = /^([A-Z_]+)\n(.*)$/s.exec(section) ?? []
    return reason === undefined ? [] : [[reason, said!.replaceAll(/\s+/g, ' ')] as const]
  })
  expect(sections.map(([reason]) => reason.toLowerCase()).sort()).toEqual([...EXPLAIN_REASONS].sort())
  for (const [reason, said] of sections) expect(said, reason).toContain('**What to do:**')
  expect([...(await documentedFacts()).keys()].sort()).toEqual([...EXPLAIN_REASONS].sort())
})

test('the facts that the type speaks of are those of the page', async () => {
  const code = await readFile(new URL('../../src/engine/explain/explanation.ts', import.meta.url), 'utf8')
  const lines = code.matchAll(/^ \* - `([a-z_]+)`: `([^`]+)`/gm)
  const said = new Map([...lines].map(([, reason, keys]) => [reason, keys!.split(/[\s*]+/)]))
  expect(said).toEqual(await documentedFacts())
})
