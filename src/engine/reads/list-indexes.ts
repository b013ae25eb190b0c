/*
 * Conditions of the indexes that lists are read by (migration 0007), word for word: the planner takes such an index only
 * for a statement that says the same.
 */

/** job_list, over jobs `j`: not archived, and not running. */
export const LISTED = `coalesce(j.archived_at is null and j.state <> 'running', false)`

/** job_list_ended. */
export const LISTED_ENDED = `coalesce(j.archived_at is null and j.state in ('completed', 'failed', 'cancelled'), false)`

/** job_list_active. */
export const LISTED_ACTIVE = `coalesce(j.archived_at is null and j.state in ('queued', 'waiting', 'paused'), false)`

/** job_list_archived. */
export const LISTED_ARCHIVED = `coalesce(j.archived_at is not null, false)`

/** job_assigned. */
export const ASSIGNED = `coalesce(j.assignee_id is not null and j.archived_at is null, false)`

/** job_errors. */
export const WITH_ERROR = `coalesce(j.error_code is not null, false)`

/** job_keys. */
export const KEYED = `coalesce(j.key is not null, false)`

/** job_labels. */
export const LABELLED = `coalesce(j.metadata <> '{}', false)`

/** job_ended_badly. */
export const ENDED_BADLY = `coalesce(j.parent_id is not null and j.archived_at is null and j.state in ('failed', 'cancelled'), false)`
