import type { StandardJSONSchemaV1, StandardSchemaV1 } from '@standard-schema/spec'
import { type InputIssue, ValidationError } from '../errors.ts'
import type { Json } from '../job.ts'

/** Any Standard Schema, or none. */
export type SchemaSlot = StandardSchemaV1 | undefined

/** What a schema takes; `None` without a schema. */
export type SchemaInput<S, None> = S extends StandardSchemaV1<infer Input, unknown> ? Input : None

/** What a schema gives; `None` without a schema. */
export type SchemaOutput<S, None> = S extends StandardSchemaV1<infer _Input, infer Output> ? Output : None

/** What came of checking a value. */
export type Parsed = { value: unknown } | { issues: InputIssue[] }

/**
 * Runs a schema over a value that came out of JSON, or will go into it. JSON has no undefined: null stands for it where
 * the schema refuses null but takes undefined. Without a schema everything passes.
 */
export async function parseJson(schema: SchemaSlot, value: Json): Promise<Parsed> {
  if (!schema) return { value }
  const parsed = await run(schema, value)
  if (value !== null || 'value' in parsed) return parsed
  const ofUndefined = await run(schema, undefined)
  return 'value' in ofUndefined ? ofUndefined : parsed
}

/**
 * As {@link parseJson}.
 *
 * @param what names the value, as the start of each issue's path.
 * @throws {ValidationError}
 */
export async function parseJsonOrThrow(schema: SchemaSlot, value: Json, what: string): Promise<unknown> {
  const parsed = await parseJson(schema, value)
  if ('issues' in parsed) {
    throw new ValidationError(parsed.issues.map((issue) => ({ ...issue, path: [what, ...issue.path] })))
  }
  return parsed.value
}

async function run(schema: StandardSchemaV1, value: unknown): Promise<Parsed> {
  const result = await schema['~standard'].validate(value)
  if (!result.issues) return { value: result.value }
  return {
    issues: result.issues.map(({ message, path = [] }) => ({
      path: path.map((segment) => String(typeof segment === 'object' ? segment.key : segment)),
      message,
    })),
  }
}

/** JSON Schema of what a schema takes; null without a schema, for one that cannot tell, and for what JSON Schema has no words for. */
export function jsonSchemaOf(schema: SchemaSlot): Json {
  const standard: Partial<StandardJSONSchemaV1.Props> | undefined = schema?.['~standard']
  try {
    return (standard?.jsonSchema?.input({ target: 'draft-2020-12' }) as Json | undefined) ?? null
  } catch {
    return null
  }
}
