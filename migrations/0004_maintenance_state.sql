-- What a handler of the maintenance loop remembers from one run to the next, in whichever process that is: where its
-- rotating cursor stands, for instance. Its own business; null: it starts afresh.
alter table maintenance add column state jsonb;
