-- What plain SQL may write into a job, where anything else would keep the engine from counting.

-- A failure tolerance is a number or a share. What else plain SQL has left there counted as no limit, and is removed
-- beforehand: PostgreSQL checks a constraint at any update of a row, also those of rows that were there before it.
alter table job add constraint job_failure_tolerance check (failure_tolerance ~ '^[0-9]{1,9}%?$') not valid;
update job set failure_tolerance = null where failure_tolerance !~ '^[0-9]{1,9}%?$';

-- Numbers that the engine only ever raises by one: set by hand to the last integer there is, the next one would be none.
alter table job add constraint job_growing_numbers check (
  version < 2000000000 and attempt < 2000000000 and retry_count < 2000000000 and wave < 2000000000
  and spawn_wave < 2000000000 and completion_epoch < 2000000000) not valid;
