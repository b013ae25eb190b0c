import { GraphQLError, type GraphQLScalarType, Kind, type ValueNode } from 'graphql'
import { GraphQLDateTime, GraphQLJSON } from 'graphql-scalars'
import { parseDuration } from '../engine/duration.ts'
import { builder } from './builder.ts'

/** A scalar of a package under our own description. */
function adopt(scalar: GraphQLScalarType, description: string, specifiedByURL: string | null): GraphQLScalarType {
  const { extensions, ...config } = scalar.toConfig()
  return new (scalar.constructor as typeof GraphQLScalarType)({ ...config, description, specifiedByURL })
}

builder.addScalarType(
  'DateTime',
  adopt(
    GraphQLDateTime,
    'RFC 3339 instant in UTC, milliseconds, from the database clock.',
    'https://scalars.graphql.org/andimarek/date-time',
  ),
)

builder.addScalarType(
  'JSON',
  adopt(
    GraphQLJSON,
    'Any JSON value, at most the size limit (1 MiB). NUL characters are refused. Numbers beyond 2^53 lose digits: send ' +
      'them as strings.',
    null,
  ),
)

builder.scalarType('BigInt', {
  description: 'Whole number of any size, always written as a decimal string. For counters that only grow.',
  serialize: String,
  parseValue: wholeNumber,
  parseLiteral: (node) => wholeNumber(textOrInteger(node)),
})

builder.scalarType('Duration', {
  description:
    'Length of time. Written as text (`500ms`, `30s`, `5m`, `2h`, `1d`) or whole milliseconds; always read as whole ' +
    'milliseconds.',
  serialize: (milliseconds) => milliseconds,
  parseValue: duration,
  parseLiteral: (node) => duration(textOrInteger(node)),
})

builder.scalarType('Tolerance', {
  description:
    'How many failed children are borne: a whole number (`3`) or a share of the wave\'s children (`"10%"`). Read as it ' +
    'was written.',
  serialize: (text) => (text.endsWith('%') ? text : Number(text)),
  parseValue: tolerance,
  parseLiteral: (node) => tolerance(textOrInteger(node)),
})

function wholeNumber(value: unknown): bigint {
  if (typeof value === 'string' && /^-?\d{1,1000}$/.test(value)) return BigInt(value)
  if (Number.isSafeInteger(value)) return BigInt(value as number)
  throw new GraphQLError('Not a whole number. Expected decimal text such as "42".')
}

function duration(value: unknown): number {
  try {
    if (typeof value === 'string' || typeof value === 'number') return parseDuration(value)
  } catch (error) {
    if (error instanceof RangeError) throw new GraphQLError(error.message)
    throw error
  }
  throw new GraphQLError('Not a duration. Expected text such as `5m`, or whole milliseconds.')
}

function tolerance(value: unknown): string {
  const text = typeof value === 'number' || typeof value === 'string' ? String(value) : ''
  const match = /^(\d{1,9})(%?)$/.exec(text)
  if (match && (match[2] === '' || Number(match[1]) <= 100)) return text
  throw new GraphQLError('Not a tolerance. Expected a whole number such as 3, or a share such as "10%".')
}

function textOrInteger(node: ValueNode): unknown {
  if (node.kind === Kind.STRING) return node.value
  if (node.kind === Kind.INT) return Number(node.value)
  return undefined
}
