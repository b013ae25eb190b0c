import { readFile, writeFile } from 'node:fs/promises'
import { buildSchema, findBreakingChanges, findDangerousChanges, lexicographicSortSchema, printSchema } from 'graphql'
import { schema } from '../src/schema/index.ts'
import { lineDifference } from './line-difference.ts'

// Writes schema.graphql from the code; with --check says whether it is what the code gives, and what differs.

const file = new URL('../schema.graphql', import.meta.url)
const text = `${printSchema(lexicographicSortSchema(schema))}\n`

if (process.argv.includes('--check')) {
  const written = await readFile(file, 'utf8').catch(() => '')
  if (written === text) {
    console.log('schema.graphql is up to date')
  } else {
    console.error('schema.graphql is not what the code gives. Run `npm run schema` and commit it. It would change:\n')
    console.error(lineDifference(written, text))
    if (written !== '') reportChanges(written)
    process.exitCode = 1
  }
} else {
  await writeFile(file, text)
  console.log('schema.graphql written')
}

function reportChanges(written: string): void {
  const before = buildSchema(written)
  const after = buildSchema(text)
  for (const change of findBreakingChanges(before, after)) console.error(`breaking: ${change.description}`)
  for (const change of findDangerousChanges(before, after)) console.error(`dangerous: ${change.description}`)
}
