-- What ends, and what is left behind.

-- Parents that have ended and still count open children, which they do not keep: none, unless another road than the
-- engine's verbs ended them. The orphan sweep finds them here.
create index job_orphaning on job (id)
  where state in ('completed', 'failed', 'cancelled') and orphan_policy = 'cancel' and open_children > 0;

-- Roots by when they ended, for the retention of jobs.
create index job_retention on job (state, finished_at, id)
  where parent_id is null and state in ('completed', 'failed', 'cancelled');

-- For the retention of events, one row a minute: all events below that xid (the xmin of the moment) were committed
-- before that instant. So a cursor that was made later has read them.
create table feed_mark (
  at          timestamptz primary key default clock_timestamp(),
  floor       xid8 not null,
  -- Since when the oldest transaction of that moment was open: what is later may have a higher xid than floor.
  open_since  timestamptz not null
);
