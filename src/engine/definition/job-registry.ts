import { type InputIssue, ValidationError } from '../errors.ts'
import type { Json } from '../job.ts'
import type { KnownType, KnownTypes } from '../prepare.ts'
import type { AnyDefinition } from './define-job.ts'
import { parseJson, parseJsonOrThrow } from './standard-schema.ts'

/** The types that this process knows: it runs them, and checks their jobs at the door. */
export interface JobRegistry extends KnownTypes {
  readonly types: readonly string[]
  definition(type: string): AnyDefinition | undefined
  /** Concurrency limits, of the types that have one. */
  readonly limits: ReadonlyMap<string, number>
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
    limits: new Map(
      [...byType.values()].flatMap(({ type, settings }) =>
        settings.concurrency ? [[type, settings.concurrency.limit] as const] : [],
      ),
    ),
  }
}

function knownType(definition: AnyDefinition): KnownType {
  const { timeouts, backoff: _backoff, isRetryable: _isRetryable, concurrency, ...defaults } = definition.settings
  return {
    defaults: { ...defaults, ...(timeouts && { timeouts: withoutNone(timeouts) }) },
    checkPayload: async (payload): Promise<InputIssue[]> => {
      const parsed = await parseJson(definition.payload, asJson(payload))
      return 'issues' in parsed ? parsed.issues : []
    },
    ...(concurrency && {
      concurrencyKey: async (payload: unknown) =>
        concurrency.key ? concurrency.key(await parseJsonOrThrow(definition.payload, asJson(payload), 'payload')) : '',
    }),
  }
}

/** Schemas see what the handler will see: what JSON makes of the payload. */
function asJson(payload: unknown): Json {
  return JSON.parse(JSON.stringify(payload)) as Json
}

/** In a row, no limit is the absence of one. */
function withoutNone<T extends object>(timeouts: T): T {
  return Object.fromEntries(Object.entries(timeouts).filter(([, limit]) => limit !== 'none')) as T
}
