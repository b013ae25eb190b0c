import type { AnyDefinition } from './define-job.ts'
import { type InputIssue, ValidationError } from './errors.ts'
import type { Json } from './job.ts'
import type { KnownType, KnownTypes } from './prepare.ts'
import { parseJson } from './standard-schema.ts'

/** The types that this process knows: it runs them, and checks their jobs at the door. */
export interface JobRegistry extends KnownTypes {
  readonly types: readonly string[]
  definition(type: string): AnyDefinition | undefined
}

/**
 * @throws {ValidationError} when two definitions have the same type.
 */
export function createJobRegistry(definitions: readonly AnyDefinition[]): JobRegistry {
  const byType = new Map<string, AnyDefinition>()
  for (const definition of definitions) {
    const other = byType.get(definition.type)
    if (other && other !== definition) throw ValidationError.of('jobs', `define the type ${definition.type} twice`)
    byType.set(definition.type, definition)
  }
  const known = new Map([...byType].map(([type, definition]) => [type, knownType(definition)]))
  return {
    types: [...byType.keys()],
    definition: (type) => byType.get(type),
    get: (type) => known.get(type),
  }
}

function knownType(definition: AnyDefinition): KnownType {
  const { timeouts, backoff: _backoff, isRetryable: _isRetryable, ...defaults } = definition.settings
  return {
    defaults: { ...defaults, ...(timeouts && { timeouts: withoutNone(timeouts) }) },
    checkPayload: async (payload): Promise<InputIssue[]> => {
      // The schema sees what the handler will see: what JSON makes of the payload.
      const parsed = await parseJson(definition.payload, JSON.parse(JSON.stringify(payload)) as Json)
      return 'issues' in parsed ? parsed.issues : []
    },
  }
}

/** In a row, no limit is the absence of one. */
function withoutNone<T extends object>(timeouts: T): T {
  return Object.fromEntries(Object.entries(timeouts).filter(([, limit]) => limit !== 'none')) as T
}
