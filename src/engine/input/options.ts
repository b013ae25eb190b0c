import { ASSIGNEE_STATUSES } from '../assignee.ts'
import { EVENT_KINDS } from '../feed/event.ts'
import { FAILURE_CODES } from '../job.ts'
import { JOB_STATES } from '../states.ts'
import { fields, instant, listOf, milliseconds, oneOf, storedText, such, text, yesOrNo } from './check.ts'
import { ACTOR, REASON } from './text.ts'

/*
 * What the verbs of an engine take besides ids and jobs. Fields that are
 * not named here are checked where they are used. Null is absent where the types say so.
 */

const actor = storedText(ACTOR).optional()
const flag = yesOrNo.optional()
const signal = such(
  (value) => typeof value === 'object' && value !== null && 'aborted' in value && 'addEventListener' in value,
  'must be an AbortSignal',
).optional()
const cursor = text.nullish()

export const ACTOR_OPTIONS = fields({ actor })
const steer = { actor, reason: storedText(REASON).optional() }
/** Of every verb on jobs; each has some of the flags. */
export const STEER_OPTIONS = fields({
  ...steer,
  descendants: flag,
  rerun: flag,
  force: flag,
  dryRun: flag,
  children: oneOf(['reopen', 'none']).optional(),
})
export const STOP_OPTIONS = fields({ grace: milliseconds.optional() })
export const WAIT_OPTIONS = fields({ timeoutMs: milliseconds.optional() })
/** Sizes are for `pageRequest` to check. */
const page = { after: cursor, before: cursor }
export const PAGE_ARGS = fields(page)

export const JOB_FILTER = fields({
  ids: listOf(text).nullish(),
  treeId: text.nullish(),
  parentId: text.nullish(),
  parentWave: such(
    (value) => Number.isInteger(value) && Math.abs(value as number) < 2 ** 31,
    'must be a whole number',
  ).nullish(),
  roots: yesOrNo.nullish(),
  states: listOf(oneOf(JOB_STATES)).nullish(),
  types: listOf(text).nullish(),
  queues: listOf(text).nullish(),
  key: text.nullish(),
  assigneeIds: listOf(text).nullish(),
  workerIds: listOf(text).nullish(),
  errorCodes: listOf(oneOf(FAILURE_CODES)).nullish(),
  error: text.nullish(),
  search: text.nullish(),
  createdAfter: instant.nullish(),
  createdBefore: instant.nullish(),
  archived: yesOrNo.nullish(),
})
export const JOBS_REQUEST = fields({
  ...page,
  filter: JOB_FILTER.optional(),
  order: fields({ field: oneOf(['created_at', 'updated_at']), direction: oneOf(['asc', 'desc']) }).optional(),
})
export const ASSIGNEES_REQUEST = fields({ ...page, statuses: listOf(oneOf(ASSIGNEE_STATUSES)).optional() })

const eventFilter = fields({
  treeId: text.nullish(),
  jobIds: listOf(text).nullish(),
  roots: yesOrNo.nullish(),
  types: listOf(such((value) => typeof value === 'string', 'must be a text')).nullish(),
  kinds: listOf(oneOf(EVENT_KINDS)).nullish(),
  to: listOf(oneOf(JOB_STATES)).nullish(),
}).nullish()
/** `first` is for the feed to check. */
export const FEED_OPTIONS = fields({ filter: eventFilter, after: cursor, signal })
export const WATCH_TREE_OPTIONS = fields({
  after: cursor,
  signal,
  heavy: such((value) => value instanceof Set, 'must be a Set of columns').optional(),
})
/** The interval is for the watching to check. */
export const WATCH_STATS_OPTIONS = fields({ signal })
