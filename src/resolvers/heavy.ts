import { type GraphQLResolveInfo, visit } from 'graphql'
import type { Heavy, HeavyColumn } from '../engine/reads/columns.ts'

/** Fields that are read from columns whose values may be large. */
const FIELDS: Readonly<Record<string, HeavyColumn>> = {
  payload: 'payload',
  result: 'result',
  metadata: 'metadata',
  errorStack: 'error_stack',
}

const known = new WeakMap<object, Heavy>()

/**
 * The heavy columns that an operation names anywhere, so that all its reads of jobs bring them along, and a tree of
 * thousands of jobs is read without them unless they are asked for.
 */
export function heavyOf(info: Pick<GraphQLResolveInfo, 'operation' | 'fragments'>): Heavy {
  let heavy = known.get(info.operation)
  if (!heavy) {
    const found = new Set<HeavyColumn>()
    const fields = {
      Field({ name }: { name: { value: string } }) {
        const column = Object.hasOwn(FIELDS, name.value) ? FIELDS[name.value] : undefined
        if (column) found.add(column)
      },
    }
    visit(info.operation, fields)
    for (const fragment of Object.values(info.fragments)) visit(fragment, fields)
    heavy = found
    known.set(info.operation, heavy)
  }
  return heavy
}
