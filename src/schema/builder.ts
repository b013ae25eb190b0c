import SchemaBuilder from '@pothos/core'
import ComplexityPlugin from '@pothos/plugin-complexity'
import ErrorsPlugin from '@pothos/plugin-errors'
import RelayPlugin from '@pothos/plugin-relay'
import type { Json } from '../engine/job.ts'
import type { Context } from '../resolvers/context.ts'
import { costOf } from './cost.ts'

/** Types that the schema is written in; every output is non-null and every input optional unless it says otherwise. */
export interface SchemaTypes {
  Context: Context
  DefaultFieldNullability: false
  DefaultInputFieldRequiredness: false
  DefaultEdgesNullability: { list: false; items: false }
  DefaultNodeNullability: false
  Scalars: {
    ID: { Input: string; Output: string }
    DateTime: { Input: Date; Output: Date }
    // Checked where it is stored.
    JSON: { Input: NonNullable<unknown>; Output: Json }
    BigInt: { Input: bigint; Output: bigint }
    /** Milliseconds. */
    Duration: { Input: number; Output: number }
    Tolerance: { Input: string; Output: string }
  }
}

/** The one builder; each file of this folder adds its types to it, `index.ts` makes the schema. */
export const builder = new SchemaBuilder<SchemaTypes>({
  plugins: [RelayPlugin, ErrorsPlugin, ComplexityPlugin],
  defaultFieldNullability: false,
  // Only says what fields cost: the server adds it up before it executes anything, subscriptions included.
  complexity: { disabled: true, fieldComplexity: costOf },
  errors: {
    // The mutations' results are the Success types themselves.
    directResult: true,
    defaultUnionOptions: { name: ({ fieldName }) => `${capitalized(fieldName)}Result` },
  },
  relay: {
    cursorType: 'String',
    // The two queries are in query.ts, on loaders of ours.
    nodeQueryOptions: false,
    nodesQueryOptions: false,
    nodeTypeOptions: { description: 'Something that can be fetched again by its id.' },
    idFieldOptions: { description: 'Global id.' },
    pageInfoTypeOptions: { description: "Relay's page information." },
    hasNextPageFieldOptions: { description: 'More after the last edge.' },
    hasPreviousPageFieldOptions: { description: 'More before the first edge.' },
    startCursorFieldOptions: { description: 'Null on an empty page.' },
    endCursorFieldOptions: { description: 'Null on an empty page.' },
    pageInfoFieldOptions: { description: 'Where the page lies.' },
    edgesFieldOptions: { description: 'The page.', nullable: { list: false, items: false } },
    nodesOnConnection: { description: 'The page without its edges.' },
    nodeFieldOptions: { nullable: false },
    cursorFieldOptions: { description: 'Connection cursor.' },
    firstArgOptions: { description: 'From the front.' },
    afterArgOptions: { description: 'Behind this cursor.' },
    lastArgOptions: { description: 'From the back.' },
    beforeArgOptions: { description: 'Before this cursor.' },
  },
})

function capitalized(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1)
}
