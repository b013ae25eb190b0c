import { type RawBuilder, sql } from 'kysely'
import { validate } from 'uuid'
import { ValidationError } from '../errors.ts'
import type { FailureCode } from '../job.ts'
import { toJsonText } from '../json.ts'
import type { JobState } from '../states.ts'

/** Which jobs: every given field must hold; a list means any of. Null is absent, except for `archived`. */
export interface JobFilter {
  ids?: readonly string[] | null | undefined
  treeId?: string | null | undefined
  parentId?: string | null | undefined
  parentWave?: number | null | undefined
  roots?: boolean | null | undefined
  states?: readonly JobState[] | null | undefined
  types?: readonly string[] | null | undefined
  queues?: readonly string[] | null | undefined
  key?: string | null | undefined
  assigneeIds?: readonly string[] | null | undefined
  errorCodes?: readonly FailureCode[] | null | undefined
  /** Metadata contains this. */
  metadata?: unknown
  /** Text in id, key, type or error. */
  search?: string | null | undefined
  createdAfter?: Date | null | undefined
  createdBefore?: Date | null | undefined
  /** Absent or false: without archived jobs; true: only those; null: both. */
  archived?: boolean | null | undefined
}

type Condition = RawBuilder<unknown>

/**
 * The conditions of a filter on table `j`.
 *
 * @throws {ValidationError} metadata that the database cannot hold, such as NUL characters
 */
export function jobConditions(filter: JobFilter): Condition[] {
  const conditions: Condition[] = []
  const given = <T>(value: T | null | undefined, condition: (value: T) => Condition) => {
    if (value !== undefined && value !== null) conditions.push(condition(value))
  }
  given(filter.ids, (ids) => sql`j.id = any(${ids}::uuid[])`)
  // Two conditions, since the index of trees leaves the roots to the primary key.
  given(
    filter.treeId,
    (id) => sql`((j.id = ${id} and j.parent_id is null) or (j.tree_id = ${id} and j.parent_id is not null))`,
  )
  given(filter.parentId, (id) => sql`j.parent_id = ${id}`)
  given(filter.parentWave, (wave) => sql`j.parent_wave = ${wave}`)
  given(filter.roots, (roots) => (roots ? sql`j.parent_id is null` : sql`j.parent_id is not null`))
  given(filter.states, (states) => sql`j.state = any(${states}::text[])`)
  given(filter.types, (types) => sql`j.type = any(${types}::text[])`)
  given(filter.queues, (queues) => sql`j.queue = any(${queues}::text[])`)
  given(filter.key, (key) => sql`j.key = ${key}`)
  given(filter.assigneeIds, (ids) => sql`j.assignee_id = any(${ids}::text[])`)
  given(filter.errorCodes, (codes) => sql`j.error_code = any(${codes}::text[])`)
  given(filter.metadata, (metadata: unknown) => sql`j.metadata @> ${jsonText(metadata)}::jsonb`)
  given(filter.search, searchCondition)
  given(filter.createdAfter, (instant) => sql`j.created_at >= ${instant}`)
  given(filter.createdBefore, (instant) => sql`j.created_at < ${instant}`)
  if (filter.archived === true) conditions.push(sql`j.archived_at is not null`)
  else if (filter.archived !== null) conditions.push(sql`j.archived_at is null`)
  return conditions
}

function jsonText(value: unknown): string {
  const json = toJsonText(value, ['metadata'])
  if ('issue' in json) throw new ValidationError([json.issue])
  return json.text
}

function searchCondition(text: string): Condition {
  const id = text.startsWith('JB_') ? text.slice(3) : text
  if (validate(id)) return sql`(j.id = ${id} or j.key = ${text})`
  const pattern = (part: string) => `%${part.replaceAll(/[\\%_]/g, '\\$&')}%`
  return sql`(j.id::text ilike ${pattern(id)} or j.key ilike ${pattern(text)} or j.type ilike ${pattern(text)}
    or j.error ilike ${pattern(text)})`
}
