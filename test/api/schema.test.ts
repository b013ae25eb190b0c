import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import {
  type GraphQLArgument,
  type GraphQLField,
  type GraphQLInputField,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isObjectType,
  lexicographicSortSchema,
  printSchema,
} from 'graphql'
import { expect, test } from 'vitest'
import { lineDifference } from '../../scripts/line-difference.ts'
import { schemaChanges } from '../../scripts/schema-changes.ts'
import { schema } from '../../src/schema/index.ts'

const ROOT = path.resolve(import.meta.dirname, '../..')

const types = Object.values(schema.getTypeMap()).filter((type) => !type.name.startsWith('__'))
const BUILT_IN = new Set(['String', 'Int', 'Float', 'Boolean', 'ID'])

test('schema.graphql is what the code gives', async () => {
  const written = await readFile(path.join(ROOT, 'schema.graphql'), 'utf8')
  expect(written).toBe(`${printSchema(lexicographicSortSchema(schema))}\n`)
})

test('every type, field, argument and value is described', () => {
  const bare: string[] = []
  const look = (name: string, described: { description?: string | null | undefined }) => {
    if (!described.description?.trim()) bare.push(name)
  }
  for (const type of types) {
    if (BUILT_IN.has(type.name)) continue
    look(type.name, type)
    if (isEnumType(type)) for (const value of type.getValues()) look(`${type.name}.${value.name}`, value)
    if (!isObjectType(type) && !isInterfaceType(type) && !isInputObjectType(type)) continue
    for (const field of Object.values<GraphQLField<unknown, unknown> | GraphQLInputField>(type.getFields())) {
      look(`${type.name}.${field.name}`, field)
      const args: readonly GraphQLArgument[] = 'args' in field ? field.args : []
      for (const arg of args) look(`${type.name}.${field.name}(${arg.name})`, arg)
    }
  }
  expect(types.length).toBeGreaterThan(60)
  expect(bare).toEqual([])
})

test('mutations take one input and answer with a union of a success and typed errors', () => {
  const fields = Object.values(schema.getMutationType()!.getFields())
  expect(fields.length).toBeGreaterThanOrEqual(10)
  for (const field of fields) {
    // The bulk verbs share theirs.
    const isBulk = /^(cancel|retry|archive|delete)Jobs$/.test(field.name)
    const Name = isBulk ? 'BulkJobs' : field.name.charAt(0).toUpperCase() + field.name.slice(1)
    expect(field.args.map((arg) => `${arg.name}: ${arg.type}`)).toEqual([`input: ${Name}Input!`])
    expect(String(field.type)).toBe(`${Name}Result!`)
    const members = schema.getPossibleTypes(schema.getType(`${Name}Result`) as never).map((type) => type.name)
    expect(members).toContain(`${Name}Success`)
    for (const name of members.filter((member) => !member.endsWith('Success'))) {
      const type = schema.getType(name)
      expect(isObjectType(type) && type.getInterfaces().map(String)).toEqual(['Error'])
    }
  }
})

test('no input has a default that graphql cannot write out', () => {
  for (const type of types) {
    if (!isInputObjectType(type)) continue
    for (const field of Object.values(type.getFields())) expect(typeof field.defaultValue).not.toBe('object')
  }
})

test('the schema script says whether the file is current', async () => {
  const run = spawn(process.execPath, ['--import', 'tsx', 'scripts/print-schema.ts', '--check'], { cwd: ROOT })
  let output = ''
  run.stdout.on('data', (data) => {
    output += data
  })
  run.stderr.on('data', (data) => {
    output += data
  })
  const code = await new Promise((resolve) => run.once('close', resolve))
  expect([code, output.trim()]).toEqual([0, 'schema.graphql is up to date'])
})

test('a change that breaks clients, or may surprise them, is told', () => {
  const before = 'type Query { a(x: Int): Int, b: Int! } enum E { ONE }'
  expect(schemaChanges(before, 'type Query { a(x: Int, y: Int!): Int, b: Int, c: Int } enum E { ONE TWO }')).toEqual([
    'breaking: A required arg y on Query.a was added.',
    'breaking: Query.b changed type from Int! to Int.',
    'dangerous: TWO was added to enum type E.',
  ])
  expect(schemaChanges(before, 'type Query { a(x: Int): Int, b: Int!, c: Int } enum E { ONE }')).toEqual([])
})

test('a difference is told by its lines', () => {
  expect(lineDifference('a\nb\nc', 'a\nx\nc\nd')).toBe('- b\n+ x\n+ d')
  expect(lineDifference('', 'a')).toBe('- \n+ a')
  expect(lineDifference('a\nb', 'a\nb')).toBe('')
})
