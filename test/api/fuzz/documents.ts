import {
  type GraphQLArgument,
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLOutputType,
  getNamedType,
  isAbstractType,
  isEnumType,
  isInputObjectType,
  isLeafType,
  isListType,
  isNonNullType,
  isObjectType,
} from 'graphql'
import { schema } from '../../../src/schema/index.ts'
import type { Random } from './random.ts'
import { anyJson, anyNumber, anyText } from './values.ts'

/** What documents are made with. */
export interface Source {
  random: Random
  /** Ids of jobs that are there. */
  ids: readonly string[]
}

const ROOTS = [
  ['query', schema.getQueryType()!],
  ['query', schema.getQueryType()!],
  ['mutation', schema.getMutationType()!],
  ['subscription', schema.getSubscriptionType()!],
] as const

/** A document that fits the schema, mostly, with hostile values. */
export function fittingDocument(source: Source): string {
  const { random } = source
  const [kind, type] = random.pick(ROOTS)
  const count = kind === 'subscription' ? 1 : 1 + random.below(2)
  const fields = random.times(count, (n) => {
    const field = random.pick(Object.values(type.getFields()))
    return `f${n}: ${fieldText(source, field, 0)}`
  })
  return `${kind} { ${fields.join(' ')} }`
}

function fieldText(source: Source, field: GraphQLField<unknown, unknown>, depth: number): string {
  const given = field.args.filter((arg) => isNonNullType(arg.type) || source.random.chance(0.4))
  const args = given.length > 0 ? `(${given.map((arg) => argText(source, arg)).join(', ')})` : ''
  return `${field.name}${args}${selectionText(source, field.type, depth)}`
}

function argText(source: Source, { name, type }: GraphQLArgument): string {
  return `${name}: ${valueText(source, type, 0)}`
}

function selectionText(source: Source, output: GraphQLOutputType, depth: number): string {
  const { random } = source
  const type = getNamedType(output)
  if (isLeafType(type)) return ''
  if (isAbstractType(type)) {
    const possible = schema.getPossibleTypes(type)
    const parts = possible.map((one) => `... on ${one.name}${selectionText(source, one, depth + 1)}`)
    return ` { __typename ${parts.join(' ')} }`
  }
  if (!isObjectType(type)) return ''
  const fields = Object.values(type.getFields())
  const usable = depth < 4 ? fields : fields.filter((field) => isLeafType(getNamedType(field.type)))
  const chosen = random.times(1 + random.below(5), () => random.pick(usable.length > 0 ? usable : fields))
  const parts = chosen.map((field, n) =>
    depth > 6 ? '__typename' : `${type.name.toLowerCase()}${n}: ${fieldText(source, field, depth + 1)}`,
  )
  return ` { ${parts.join(' ')} }`
}

function valueText(source: Source, type: GraphQLInputType, depth: number): string {
  const { random, ids } = source
  if (isNonNullType(type)) return valueText(source, type.ofType, depth)
  if (random.chance(0.03)) return literalOf(anyJson(random, ids))
  if (isListType(type)) {
    return `[${random.times(random.below(4), () => valueText(source, type.ofType, depth + 1)).join(', ')}]`
  }
  if (isEnumType(type)) return random.pick(type.getValues()).name
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields()).filter(
      (field) => isNonNullType(field.type) || (depth < 3 && random.chance(0.3)),
    )
    return `{${fields.map((field) => `${field.name}: ${valueText(source, field.type, depth + 1)}`).join(', ')}}`
  }
  switch (type.name) {
    case 'Int':
      return String(random.chance(0.7) ? random.below(25) : Math.trunc(anyNumber(random)))
    case 'Float':
      return literalOf(anyNumber(random))
    case 'Boolean':
      return String(random.chance(0.5))
    case 'JSON':
      return literalOf(anyJson(random, ids))
    default:
      return JSON.stringify(anyText(random, ids))
  }
}

/** A JSON value as GraphQL writes it: names of fields that are no names are left out. */
function literalOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(literalOf).join(', ')}]`
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value).filter(([name]) => /^[_a-z]\w*$/i.test(name))
    return `{${fields.map(([name, one]) => `${name}: ${literalOf(one)}`).join(', ')}}`
  }
  return JSON.stringify(value)
}

const PIECES = [
  '{',
  '}',
  '(',
  '...',
  '...F',
  '@skip(if: true)',
  '@include(if: $x)',
  '@defer',
  '"""',
  '"',
  '\\u0000',
  '\u0000',
  '\ufeff',
  '#',
  '$x',
  '&',
  '__schema { types { fields { type { fields { name } } } } }',
  '__typename ',
  'fragment F on Job { ...F } ',
  'fragment G on Query { viewer { name } } ',
  'query A { viewer { name } } ',
  'nonsense ',
  '99999999999999999999 ',
  '{ job(id: "x") '.repeat(30),
  'a: viewer { name } '.repeat(150),
  'viewer { name } '.repeat(1500),
  '['.repeat(3000),
]

/** Breaks a text in a few places. */
export function broken(random: Random, text: string): string {
  let result = text
  for (let n = random.below(4); n >= 0; n--) {
    const at = random.below(result.length + 1)
    const end = at + random.below(12)
    switch (random.below(4)) {
      case 0:
        result = result.slice(0, at) + result.slice(end)
        break
      case 1:
        result = result.slice(0, at) + random.pick(PIECES) + result.slice(at)
        break
      case 2:
        result = result.slice(0, at) + result.slice(at, end).repeat(1 + random.below(20)) + result.slice(end)
        break
      default:
        result = result.slice(0, at) + String.fromCharCode(random.below(0x300)) + result.slice(at + 1)
    }
  }
  return result
}
