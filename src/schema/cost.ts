import type { FieldComplexityFunction } from '@pothos/plugin-complexity'
import { type GraphQLOutputType, getNamedType, getNullableType, isLeafType, isListType } from 'graphql'
import type { Context } from '../resolvers/context.ts'

/** Plain values are cheap beside the rows that they come from. */
const VALUE_COST = 0.1
const OBJECT_COST = 1
/** Page size where none is asked for. */
const DEFAULT_PAGE = 20
/** What a list is counted as that nothing tells the length of. */
const UNKNOWN_LENGTH = 10
/** The largest page of all; larger ones are refused where they are read. */
const MAX_PAGE = 10_000
/** Lists that are as long as the field above says. */
const PAGE_FIELDS = new Set(['edges', 'nodes', 'events'])

/** What a field costs, and how often what is below it counts: as often as its arguments say, at the most. */
export const costOf: FieldComplexityFunction<Context, Record<string, unknown>> = (args, _context, field) => ({
  field: isLeafType(getNamedType(field.type)) ? VALUE_COST : OBJECT_COST,
  multiplier: lengthOf(args, field),
})

function lengthOf(
  { first, last, ids }: Record<string, unknown>,
  field: { name: string; type: GraphQLOutputType; args: readonly { name: string }[] },
): number {
  const pages = field.args.some(({ name }) => name === 'first')
  if (pages) return Math.min(Math.max(Number(first ?? last ?? DEFAULT_PAGE), 1), MAX_PAGE)
  if (Array.isArray(ids)) return Math.max(ids.length, 1)
  if (!isListType(getNullableType(field.type)) || PAGE_FIELDS.has(field.name)) return 1
  return UNKNOWN_LENGTH
}
