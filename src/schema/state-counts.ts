import type { StateCounts as Counts } from '../engine/reads/state-counts.ts'
import { builder } from './builder.ts'

export const StateCounts = builder.objectRef<Counts>('StateCounts').implement({
  description: 'Number of jobs by state, without archived ones.',
  fields: (t) => ({
    total: t.exposeInt('total', { description: 'All.' }),
    open: t.exposeInt('open', { description: 'Not terminal.' }),
    queued: t.exposeInt('queued', { description: 'QUEUED.' }),
    running: t.exposeInt('running', { description: 'RUNNING.' }),
    waiting: t.exposeInt('waiting', { description: 'WAITING.' }),
    paused: t.exposeInt('paused', { description: 'PAUSED.' }),
    completed: t.exposeInt('completed', { description: 'COMPLETED.' }),
    failed: t.exposeInt('failed', { description: 'FAILED.' }),
    cancelled: t.exposeInt('cancelled', { description: 'CANCELLED.' }),
  }),
})
