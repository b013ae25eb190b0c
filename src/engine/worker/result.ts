import type { AnyDefinition } from '../definition/define-job.ts'
import { parseJsonOrThrow } from '../definition/standard-schema.ts'
import { ValidationError } from '../errors.ts'
import type { Json } from '../job.ts'
import { toJsonText } from '../json.ts'

/**
 * What a handler returned, as it is stored: undefined is null.
 *
 * @throws {ValidationError} when it has no JSON form, is too large, or the type's schema refuses it.
 */
export async function resultOf(definition: AnyDefinition, value: unknown): Promise<Json> {
  const json = toJsonText(value === undefined ? null : value, ['result'])
  if ('issue' in json) throw new ValidationError([json.issue])
  const result = JSON.parse(json.text) as Json
  await parseJsonOrThrow(definition.result, result, 'result')
  return result
}
