import { type RawBuilder, sql } from 'kysely'
import { validate } from 'uuid'
import { ValidationError } from '../errors.ts'
import type { FailureCode } from '../job.ts'
import { toJsonText } from '../json.ts'
import type { JobState } from '../states.ts'
import { KEYED, LABELLED, WITH_ERROR } from './list-indexes.ts'

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
  /** Running on one of these workers. */
  workerIds?: readonly string[] | null | undefined
  errorCodes?: readonly FailureCode[] | null | undefined
  /** Text in the last error's message. */
  error?: string | null | undefined
  /** Metadata contains this. */
  metadata?: unknown
  /** Text in id, key, type or error. */
  search?: string | null | undefined
  createdAfter?: Date | null | undefined
  createdBefore?: Date | null | undefined
  /** Absent or false: without archived jobs; true: only those; null: both. */
  archived?: boolean | null | undefined
}

export type Condition = RawBuilder<unknown>

/** Whether a filter says something by this field. */
export function isGiven<T>(value: T | null | undefined): value is T {
  return value !== undefined && value !== null
}

/**
 * The conditions of a filter on table `j`.
 *
 * @throws {ValidationError} metadata that the database cannot hold, such as NUL characters
 */
export function jobConditions(filter: JobFilter): Condition[] {
  const conditions: Condition[] = []
  const given = <T>(value: T | null | undefined, condition: (value: T) => Condition) => {
    if (isGiven(value)) conditions.push(condition(value))
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
  given(filter.key, (key) => sql`j.key = ${key} and ${sql.raw(KEYED)}`)
  given(filter.assigneeIds, (ids) => sql`j.assignee_id = any(${ids}::text[])`)
  given(filter.workerIds, (ids) => sql`j.worker_id = any(${ids}::uuid[]) and j.state = 'running'`)
  given(filter.errorCodes, (codes) => sql`j.error_code = any(${codes}::text[]) and ${sql.raw(WITH_ERROR)}`)
  given(filter.error, (text) => sql`j.error ilike ${containing(text)}`)
  given(filter.metadata, metadataCondition)
  given(filter.search, searchCondition)
  given(filter.createdAfter, (instant) => sql`j.created_at >= ${instant}`)
  given(filter.createdBefore, (instant) => sql`j.created_at < ${instant}`)
  if (filter.archived === true) conditions.push(sql`j.archived_at is not null`)
  else if (filter.archived !== null) conditions.push(sql`j.archived_at is null`)
  return conditions
}

function metadataCondition(metadata: unknown): Condition {
  const json = toJsonText(metadata, ['metadata'])
  if ('issue' in json) throw new ValidationError([json.issue])
  // Everything contains nothing, also what the index leaves out.
  return json.text === '{}'
    ? sql`j.metadata @> '{}'::jsonb`
    : sql`j.metadata @> ${json.text}::jsonb and ${sql.raw(LABELLED)}`
}

/** Whether a search names one job by its id. */
export function isIdSearch(text: string): boolean {
  return validate(bareId(text))
}

function searchCondition(text: string): Condition {
  const id = bareId(text)
  if (isIdSearch(text)) return sql`(j.id = ${id} or (j.key = ${text} and ${sql.raw(KEYED)}))`
  return sql`(j.id::text ilike ${containing(id)} or j.key ilike ${containing(text)} or j.type ilike ${containing(text)}
    or j.error ilike ${containing(text)})`
}

function bareId(text: string): string {
  return text.startsWith('JB_') ? text.slice(3) : text
}

function containing(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, '\\$&')}%`
}
