import { formatId } from '../engine/ids.ts'
import { builder } from './builder.ts'
import { Worker } from './refs.ts'

Worker.implement({
  description: 'One incarnation of a worker process.',
  interfaces: [builder.nodeInterfaceRef()],
  fields: (t) => ({
    id: t.id({
      description: "`WK_` and the incarnation's UUID.",
      resolve: (worker) => formatId('WK', worker.id),
    }),
    host: t.exposeString('host', { description: 'Host name.' }),
    pid: t.exposeInt('pid', { description: 'Process number.' }),
    queues: t.exposeStringList('queues', { description: 'Queues it serves; all of them if empty.' }),
    types: t.exposeStringList('types', { description: 'Types it knows.' }),
    concurrency: t.exposeInt('concurrency', { description: 'Most jobs at once.' }),
    running: t.exposeInt('running', { description: 'Jobs it holds now.' }),
    stopping: t.exposeBoolean('stopping', { description: 'It claims no more.' }),
    startedAt: t.expose('startedAt', { type: 'DateTime', description: 'When it started.' }),
    heartbeatAt: t.expose('heartbeatAt', { type: 'DateTime', description: 'Its last sign of life.' }),
  }),
})
