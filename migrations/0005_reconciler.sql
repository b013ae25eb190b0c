-- The parent-wake reconciler: where it looks first, and how it hears of what plain SQL does to jobs.

-- Parents that may be due a wake: nearly none in steady state. By assignee, so that those whose assignee cannot act cost
-- one probe for each assignee. Ephemeral ones come apart from the others: only the edge wakes them, an assignee's
-- activation among it.
drop index job_due;
create index job_stuck on job (ephemeral, assignee_id, id)
  where state = 'waiting' and open_children <= 0 and archived_at is null and failing_child_id is null;

-- Parents whose children plain SQL has changed, for the reconciler to look at. Without a key, so that transactions which
-- change many children of one parent never wait for each other here.
create table wake_mark (
  id              bigint generated always as identity primary key,
  parent_id       uuid not null,
  -- A child that failed and takes its parent with it.
  failed_child_id uuid
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What plain SQL does to jobs gets its event, version and epoch, as if a verb had done it. The engine raises `version`
-- with every move of its own, and sets `coppice.writer` for the transaction before it deletes: that tells the two apart.
-- With these triggers disabled nothing is lost but the events: the reconciler's audit finds the parents, later.

create function job_changed_by_sql() returns trigger
language plpgsql set search_path from current as $$
declare
  moved     constant boolean := new.state <> old.state;
  archived  constant boolean := new.archived_at is not null and old.archived_at is null;
  ended     constant boolean := new.state in ('completed', 'failed', 'cancelled');
  was_ended constant boolean := old.state in ('completed', 'failed', 'cancelled');
begin
  new.updated_at := now();
  if moved then
    new.version := new.version + 1;
    new.pause_requested := false;
    if ended then new.completion_epoch := old.completion_epoch + 1; end if;
    -- What the statement itself sets, it means.
    if new.finished_at is not distinct from old.finished_at then
      new.finished_at := case when ended then now() end;
    end if;
    if new.waiting_since is not distinct from old.waiting_since then
      new.waiting_since := case
        when new.state = 'waiting' then now()
        when new.state = 'paused' then old.waiting_since
        -- Kept by a job that ends while it waits: a retry lets it wait again.
        when new.state in ('failed', 'cancelled') and 'waiting' in (old.state, old.paused_from) then old.waiting_since
      end;
    end if;
    if new.state <> 'paused' then
      new.paused_from := null;
    elsif new.paused_from is null then
      new.paused_from := case when old.state = 'waiting' then 'waiting' else 'queued' end;
    end if;
    if new.state = 'cancelled' or (was_ended and not ended) then new.failing_child_id := null; end if;
    if was_ended and not ended then new.children_reopened := false; end if;
    -- Whoever held the job holds it no longer, and who is to hold it now, nobody knows.
    if 'running' in (old.state, new.state) and new.claim_token is not distinct from old.claim_token then
      new.claim_token := null;
      if new.state = 'running' then new.worker_id := null; end if;
    end if;
    insert into job_event (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor, reason)
    values ('moved', new.id, new.tree_id, new.parent_id, new.type, old.state, new.state, new.phase, new.wave, new.attempt,
      new.version, 'sql', 'changed by SQL');
  end if;
  if (new.archived_at is null) <> (old.archived_at is null) then
    new.version := new.version + 1;
    insert into job_event (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor, reason)
    values (case when archived then 'archived' else 'unarchived' end, new.id, new.tree_id, new.parent_id, new.type,
      new.state, new.state, new.phase, new.wave, new.attempt, new.version, 'sql', 'changed by SQL');
  end if;
  if new.parent_id is not null then
    insert into wake_mark (parent_id, failed_child_id)
    values (new.parent_id,
      case when moved and new.state = 'failed' and new.on_child_failure = 'fail_parent' then new.id end);
  end if;
  if new.state = 'waiting' then insert into wake_mark (parent_id) values (new.id); end if;
  return new;
end
$$;

create trigger changed_by_sql before update of state, archived_at on job for each row
when (new.version = old.version
  and (new.state <> old.state or (new.archived_at is null) <> (old.archived_at is null)))
execute function job_changed_by_sql();

create function job_deleted_by_sql() returns trigger
language plpgsql set search_path from current as $$
begin
  insert into job_event (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor, reason)
  values ('deleted', old.id, old.tree_id, old.parent_id, old.type, old.state, null, old.phase, old.wave, old.attempt,
    old.version + 1, 'sql', 'deleted by SQL');
  if old.parent_id is not null then insert into wake_mark (parent_id) values (old.parent_id); end if;
  return null;
end
$$;

create trigger deleted_by_sql after delete on job for each row
when (current_setting('coppice.writer', true) is distinct from 'engine')
execute function job_deleted_by_sql();

-- A child that the engine writes has a wave; one written by hand mostly has none. If it has, the counter of its parent is
-- too low for a while, which wakes nobody early.
create function job_added_by_sql() returns trigger
language plpgsql set search_path from current as $$
begin
  insert into wake_mark (parent_id) values (new.parent_id);
  return null;
end
$$;

create trigger added_by_sql after insert on job for each row
when (new.parent_id is not null and new.parent_wave is null)
execute function job_added_by_sql();
