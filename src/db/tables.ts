import type { Generated } from 'kysely'

/** Columns of `job` as the driver returns them. Enumerations are plain text here; the engine gives them their types. */
export interface JobTable {
  id: string
  tree_id: string
  parent_id: string | null
  parent_wave: number | null
  depth: number
  type: string
  queue: string
  priority: number
  run_at: Date
  key: string | null
  payload: unknown
  result: unknown
  metadata: unknown
  state: string
  phase: string
  wave: number
  spawn_wave: number
  version: number
  checkpoint: unknown
  concurrency_key: string | null
  attempt: number
  claim_token: string | null
  worker_id: string | null
  claimed_at: Date | null
  retry_count: number
  max_retries: number
  completion_epoch: number
  child_count: number
  open_children: number
  progress: unknown
  assignee_id: string | null
  ephemeral: boolean
  archived_at: Date | null
  on_child_failure: string
  failure_tolerance: string | null
  orphan_policy: string
  timeouts: unknown
  error: string | null
  error_code: string | null
  error_stack: string | null
  cancel_reason: string | null
  cancel_code: string | null
  skipped_ingest: boolean
  paused_from: string | null
  pause_requested: boolean
  failing_child_id: string | null
  children_reopened: boolean
  waiting_since: Date | null
  created_at: Date
  updated_at: Date
  started_at: Date | null
  finished_at: Date | null
}

/** Columns of `job_event`; id and xid are decimal strings. */
export interface JobEventTable {
  id: Generated<string>
  xid: Generated<string>
  kind: string
  job_id: string
  tree_id: string
  parent_id: string | null
  type: string
  from: string | null
  to: string | null
  phase: string
  wave: number
  attempt: number
  version: number
  at: Date
  actor: string
  reason: string | null
  detail: unknown
}

/** Columns of `wake_receipt`. */
export interface WakeReceiptTable {
  parent_id: string
  child_set_key: string
  operation_id: string
  wave: number
  delivered_attempt: number | null
  source: string
  forced: boolean
  at: Date
}

/** Columns of `worker`; beat is a decimal string. */
export interface WorkerTable {
  id: string
  host: string
  pid: number
  queues: string[]
  types: string[]
  concurrency: number
  stopping: boolean
  beat: string
  beat_interval: number
  schema_version: number
  started_at: Date
  heartbeat_at: Date
  dead_at: Date | null
}

/** Columns of `assignee`. */
export interface AssigneeTable {
  id: string
  status: string
  updated_at: Date
}

/** The tables that reads with varying shape go to. */
export interface Tables {
  job: JobTable
  job_event: JobEventTable
  wake_receipt: WakeReceiptTable
  worker: WorkerTable
  assignee: AssigneeTable
}
