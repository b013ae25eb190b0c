-- Concurrency limits: at most so many jobs of a type and key run at once. What counts is the rows in state running; there
-- is no counter that could drift. Jobs without a concurrency_key are in neither index, and cost nothing here.

-- Which keys have queued jobs, by skipping from key to key; and the best job of a key.
create index job_limited_ready on job (type, concurrency_key, queue, priority, run_at, id)
  where state = 'queued' and archived_at is null and concurrency_key is not null;
-- How many of a key run.
create index job_limited_running on job (type, concurrency_key)
  where state = 'running' and concurrency_key is not null;
