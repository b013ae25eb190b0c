import type { Assignee as EngineAssignee } from '../engine/assignee.ts'
import { formatId } from '../engine/ids.ts'
import { assigneeCounts } from '../resolvers/installation.ts'
import { builder } from './builder.ts'
import { AssigneeStatus } from './enums.ts'
import { StateCounts } from './state-counts.ts'

export const Assignee = builder.objectRef<EngineAssignee>('Assignee').implement({
  description: 'Someone or something whose jobs run only while it is ACTIVE.',
  interfaces: [builder.nodeInterfaceRef()],
  fields: (t) => ({
    id: t.id({
      description: '`AS_` and the id you chose.',
      resolve: (assignee) => formatId('AS', assignee.id),
    }),
    status: t.expose('status', { type: AssigneeStatus, description: 'Whether it may act.' }),
    counts: t.field({ type: StateCounts, description: 'Its jobs by state.', resolve: assigneeCounts }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime', description: 'When its status last changed.' }),
  }),
})
