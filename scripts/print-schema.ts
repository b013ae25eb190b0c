import { readFile, writeFile } from 'node:fs/promises'
import { lexicographicSortSchema, printSchema } from 'graphql'
import { schema } from '../src/schema/index.ts'
import { lineDifference } from './line-difference.ts'
import { schemaChanges } from './schema-changes.ts'

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
    if (written !== '') for (const change of schemaChanges(written, text)) console.error(change)
    process.exitCode = 1
  }
} else {
  await writeFile(file, text)
  console.log('schema.graphql written')
}
