-- What lists of jobs are read by, newest or oldest first, at any size of the table. Each index is paid for with every row
-- that is written and with every move, so there are few, and most leave out what is not looked for.
--
-- Their conditions are wrapped in coalesce(…): so no statement implies them but the lists, which say the very same. The
-- engine's own statements keep the indexes that were made for them, whatever statistics the planner has.

-- Lists by queue, type, state, and whether it is a root: one probe for each group, then in order. A job that runs is in
-- job_running, and there are no more of those than slots; so the claim writes nothing here.
create index job_list on job (queue, type, state, (parent_id is null), created_at, id)
  where coalesce(archived_at is null and state <> 'running', false);
-- What changed last, of what has ended and of what is to go on. A list of some of it looks at the front of these, and else
-- sorts what job_list finds.
create index job_list_ended on job (updated_at, id)
  where coalesce(archived_at is null and state in ('completed', 'failed', 'cancelled'), false);
create index job_list_active on job (updated_at, id)
  where coalesce(archived_at is null and state in ('queued', 'waiting', 'paused'), false);
-- As job_list, for archived jobs.
create index job_list_archived on job (queue, type, state, (parent_id is null), created_at, id)
  where coalesce(archived_at is not null, false);
-- Lists of an assignee, and its jobs by state.
create index job_assigned on job (assignee_id, state, id)
  where coalesce(assignee_id is not null and archived_at is null, false);
-- Failures, and what was retried for one.
create index job_errors on job (error_code, id) where coalesce(error_code is not null, false);
create index job_keys on job (key, id) where coalesce(key is not null, false);
create index job_labels on job using gin (metadata jsonb_path_ops) where coalesce(metadata <> '{}', false);
-- The children of a large fan-out that went wrong: mostly few.
create index job_ended_badly on job (parent_id, state, id)
  where coalesce(parent_id is not null and archived_at is null and state in ('failed', 'cancelled'), false);

create index assignee_status on assignee (status, id);
