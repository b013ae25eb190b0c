-- Maintenance: one row for each handler of the maintenance loop, made when it first runs. A handler runs in one process
-- at a time: the one that holds its row, until `held_until`. Times are the database clock's.

create table maintenance (
  name         text primary key,
  -- The loop that runs it now: a UUID of its own; null between runs.
  held_by      uuid,
  held_until   timestamptz,
  started_at   timestamptz,
  finished_at  timestamptz,
  -- How the last run failed; null if it did not.
  error        text
) with (fillfactor = 50);

-- When a waiting job has waited for as long as it may. An index expression must be immutable, which adding an interval
-- to a timestamptz is not: hence UTC without a zone. A limit that is no number (from SQL by hand) is none.
create index job_wait_deadline on job (
  ((waiting_since at time zone 'UTC') + interval '1 millisecond' * case when jsonb_typeof(timeouts -> 'wait') = 'number' then (timeouts ->> 'wait')::float8 end),
  id
) where state = 'waiting' and timeouts ? 'wait';
