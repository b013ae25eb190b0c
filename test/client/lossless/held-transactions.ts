import type pg from 'pg'

/**
 * Holds one transaction in a hundred open for 400 ms after it has written its first events: it has taken its numbers and
 * its locks, and others overtake it.
 */
export async function holdTransactions(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create sequence public.held;
    create function public.hold() returns trigger language plpgsql as $$
    begin
      if current_setting('test.looked', true) is distinct from 'yes' then
        perform set_config('test.looked', 'yes', true);
        if random() < 0.01 then
          perform nextval('public.held'), pg_sleep(0.4);
        end if;
      end if;
      return null;
    end $$;
    create trigger hold after insert on coppice.job_event for each statement execute function public.hold()`)
}

/** How many were. */
export async function heldTransactions(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query('select case when is_called then last_value else 0 end::int as n from public.held')
  return rows[0].n
}
