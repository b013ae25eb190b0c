-- What ends, and what is left behind.

-- Parents that have ended and still count open children, which they do not keep: none, unless another road than the
-- engine's verbs ended them. The orphan sweep finds them here.
create index job_orphaning on job (id)
  where state in ('completed', 'failed', 'cancelled') and orphan_policy = 'cancel' and open_children > 0;
