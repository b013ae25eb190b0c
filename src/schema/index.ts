import { builder } from './builder.ts'
import './scalars.ts'
import './job.ts'
import './job-event.ts'
import './query.ts'
import './installation.ts'
import './worker.ts'
import './enqueue.ts'
import './steer.ts'
import './bulk.ts'
import './subscription.ts'

builder.mutationType({
  description:
    'Steering. Each runs in one transaction; the bulk verbs (…Jobs) run in many small ones, enqueueJobs in one.',
})

/** What clients see. */
export const schema = builder.toSchema()
