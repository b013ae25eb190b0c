-- Coppice, map of the tables. Names are unqualified: the runner puts its schema (`coppice` by default) on the search path.
--
--   job           one row a job: a node of a tree. Root: parent_id null, tree_id = id. parent_id and tree_id are soft
--                 references, they outlive a deleted parent.
--   job_event     the log: one row for every creation, move, archive and delete, written in the transaction that did it.
--                 It is the audit trail and what the feed reads. xid orders it for readers, version orders it per job.
--   wake_receipt  one row a parent: the last child set it was woken for.
--   worker        one row for each incarnation of a worker process; its jobs' leases live as long as its beat goes on.
--   assignee      who must be able to act for the jobs that name them to be claimed or woken.
--   feed_epoch    one row, UNLOGGED: gone after a crash, so that cursors of before the crash expire.
--   feed_floor    one row: events below this xid were deleted by retention.
--
-- Life of a job:  queued -> running -> completed | failed | cancelled
--                              |  ^
--                 waiting <----+  |  (wake: queued again, phase aggregate, wave + 1)
--                    +------------+
--
-- Terminal: completed, failed, cancelled. Open member of a parent's child set: not terminal and not archived.
-- Invariant: job.open_children = number of open members among its children, changed in the transaction that changes them.
-- Locks: tree lock (advisory), then job rows by (depth desc, id) for no key update, then assignee rows.

create table job (
  id                uuid primary key,
  tree_id           uuid not null,
  parent_id         uuid,
  parent_wave       int,
  depth             int not null default 0,
  type              text not null,
  queue             text not null default 'default',
  priority          int not null default 0,
  run_at            timestamptz not null default now(),
  key               text,
  payload           jsonb not null default '{}',
  result            jsonb,
  metadata          jsonb not null default '{}',
  state             text not null default 'queued'
    check (state in ('queued', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled')),
  phase             text not null default 'ingest' check (phase in ('ingest', 'aggregate')),
  wave              int not null default 0,
  -- Label of the child set that the job collects now: its children carry it as parent_wave.
  spawn_wave        int not null default 0,
  version           int not null default 1,
  checkpoint        jsonb,
  concurrency_key   text,
  attempt           int not null default 0,
  -- The fence: a fresh UUID per claim. Kept after the attempt, so that a repeated settle recognises its own work.
  claim_token       uuid,
  worker_id         uuid,
  claimed_at        timestamptz,
  retry_count       int not null default 0,
  max_retries       int not null default 2,
  completion_epoch  int not null default 0,
  child_count       int not null default 0,
  open_children     int not null default 0,
  progress          jsonb,
  assignee_id       text,
  ephemeral         boolean not null default false,
  archived_at       timestamptz,
  on_child_failure  text not null default 'continue' check (on_child_failure in ('continue', 'fail_parent', 'ignore')),
  failure_tolerance text,
  orphan_policy     text not null default 'cancel' check (orphan_policy in ('cancel', 'keep')),
  -- { ingest, aggregate, wait: milliseconds or absent, onWaitTimeout: 'fail' | 'aggregate' }
  timeouts          jsonb not null default '{}',
  error             text,
  error_code        text,
  error_stack       text,
  cancel_reason     text,
  cancel_code       text,
  -- Enqueued together with its children: it never ran an ingest.
  skipped_ingest    boolean not null default false,
  -- Where a paused job goes on resume; and a running job that is to be paused when its attempt ends.
  paused_from       text check (paused_from in ('queued', 'waiting')),
  pause_requested   boolean not null default false,
  -- A child whose failure this parent does not bear: it fails in the next transaction, nothing wakes or completes it.
  failing_child_id  uuid,
  -- A child was reopened or added while this parent ran: it waits (again) where it would have ended.
  children_reopened boolean not null default false,
  waiting_since     timestamptz,
  created_at        timestamptz not null default now(),
  updated_at        timestamptz not null default now(),
  started_at        timestamptz,
  finished_at       timestamptz
) with (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 0
);

create index job_tree on job (tree_id, depth, id) where parent_id is not null;
create index job_children on job (parent_id, id) where parent_id is not null;
create index job_open_children on job (parent_id)
  where parent_id is not null and archived_at is null and state in ('queued', 'running', 'waiting', 'paused');
-- Claims: one probe for each (type, queue, priority), then in order of run_at, id.
create index job_ready on job (type, queue, priority, run_at, id) where state = 'queued' and archived_at is null;
create index job_running on job (worker_id) where state = 'running';
-- Parents that may be due a wake: nearly none in steady state.
create index job_due on job (assignee_id, id) where state = 'waiting' and open_children <= 0 and archived_at is null;
create index job_waiting on job (waiting_since, id) where state = 'waiting';
create index job_failing on job (id)
  where failing_child_id is not null and state in ('queued', 'waiting', 'paused');
create unique index job_root_key on job (type, key) where parent_id is null and key is not null;
create unique index job_child_key on job (parent_id, type, key) where parent_id is not null and key is not null;

create table job_event (
  id         bigint generated always as identity (cache 1) primary key,
  xid        xid8 not null default pg_current_xact_id(),
  kind       text not null check (kind in ('created', 'moved', 'progress', 'archived', 'unarchived', 'deleted')),
  job_id     uuid not null,
  tree_id    uuid not null,
  parent_id  uuid,
  type       text not null,
  "from"     text,
  "to"       text,
  phase      text not null,
  wave       int not null,
  attempt    int not null,
  version    int not null,
  at         timestamptz not null default clock_timestamp(),
  actor      text not null,
  reason     text,
  detail     jsonb
) with (
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_vacuum_cost_delay = 0
);

create index job_event_feed on job_event (xid, id);
create index job_event_job on job_event (job_id, version);

create table wake_receipt (
  parent_id         uuid primary key references job (id) on delete cascade,
  child_set_key     text not null,
  operation_id      text not null,
  wave              int not null,
  delivered_attempt int,
  source            text not null check (source in ('edge', 'reconciler', 'manual', 'timeout')),
  forced            boolean not null default false,
  at                timestamptz not null default clock_timestamp()
);

create table worker (
  id             uuid primary key,
  host           text not null,
  pid            int not null,
  queues         text[] not null,
  types          text[] not null,
  concurrency    int not null,
  stopping       boolean not null default false,
  beat           bigint not null default 0,
  beat_interval  int not null,
  schema_version int not null,
  started_at     timestamptz not null default now(),
  heartbeat_at   timestamptz not null default now(),
  -- Declared dead by an observer, or stopped: its claims and beats are refused, its jobs go back.
  dead_at        timestamptz
) with (fillfactor = 50);

create table assignee (
  id         text primary key,
  status     text not null check (status in ('active', 'paused', 'stopped', 'pending_approval')),
  updated_at timestamptz not null default now()
);

create unlogged table feed_epoch (
  id                uuid not null,
  system_identifier bigint not null,
  database_oid      oid not null
);
create unique index feed_epoch_one on feed_epoch ((true));

create table feed_floor (
  floor xid8 not null
);
create unique index feed_floor_one on feed_floor ((true));
insert into feed_floor values (pg_current_xact_id());
