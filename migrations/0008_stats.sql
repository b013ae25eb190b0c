-- The installation in numbers.

-- How many are paused; the other active states have indexes of their own.
create index job_paused on job (id) where state = 'paused' and archived_at is null;

-- Counters of wakes since the database was made: each process adds what its own have grown by, every few seconds.
create table wake_counter (
  name   text primary key,
  value  bigint not null
) with (fillfactor = 50);

-- How long the last run of a maintenance handler took, wherever that was.
alter table maintenance add column took interval;
