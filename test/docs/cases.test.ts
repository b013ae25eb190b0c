import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const DOCS = fileURLToPath(new URL('../../docs/', import.meta.url))

/** A row of the tables: a test, and the case it is for. */
interface Row {
  number: number
  file: string
  name: string
}

async function rows(): Promise<Row[]> {
  const text = await readFile(path.join(DOCS, 'cases.md'), 'utf8')
  let number = 0
  // However wide the columns are set.
  const found = text.matchAll(/^\| +(\d*) *\| .*? \| +\[[^\]]*\]\(([^)]*)\) +\| (.*) \|$/gm)
  return [...found].map(([, given, file, name]) => {
    number = Number(given || number)
    return { number, file: path.join(DOCS, file!), name: name!.trim() }
  })
}

test('every test that docs/cases.md names is there, runs, and is named for its case', async () => {
  const all = await rows()
  const text = await readFile(path.join(DOCS, 'cases.md'), 'utf8')
  expect(all).toHaveLength(text.match(/\(\.\.\/test\//g)!.length)
  expect(all.length).toBeGreaterThan(50)
  for (const { file, name } of all) {
    const source = await readFile(file, 'utf8')
    const [, call] = new RegExp(`\\b(\\S+)\\(\\s*['"\`]${escaped(name)}['"\`]`).exec(source) ?? []
    expect(call, `${file}: ${name}`).toMatch(/^(test|it)(\.each\(.*\))?$/)
  }
  for (const { number, name } of all) {
    const named = [...name.matchAll(/\bcases? (\d+)(?:(?:, | and )(\d+))*/g)].flatMap(([all]) => all.match(/\d+/g)!)
    if (named.length > 0) expect(named.map(Number), name).toContain(number)
  }
})

test('its cases are in order within a section, each once', async () => {
  const numbers = [...new Set((await rows()).map(({ number }) => number))]
  const text = await readFile(path.join(DOCS, 'cases.md'), 'utf8')
  expect(text.match(/^\| +\d+ +\|/gm)).toHaveLength(numbers.length)
  for (const section of text.split(/^## /m).slice(1)) {
    const own = [...section.matchAll(/^\| +(\d+) +\|/gm)].map(([, number]) => Number(number))
    expect(own).toEqual([...own].sort((a, b) => a - b))
  }
})

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
