/** One column of the comparison: a peer's module, how it is set up, and on which workloads it is run. */
export const ENTRIES = [
  {
    name: 'coppice',
    module: 'coppice',
    settings: { concurrency: 3000 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
  },
  {
    name: 'graphile-worker, fan-in by hand',
    module: 'graphile-worker',
    settings: { concurrency: 24, localQueue: 500 },
    treeSettings: { concurrency: 10 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
  },
  {
    name: 'pg-boss, fan-in by hand',
    module: 'pg-boss',
    settings: { batchSize: 1000, workers: 2 },
    treeSettings: { workers: 1 },
    wakeSettings: { batchSize: 100 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
  },
  {
    name: 'pg-boss, fan-in by hand for each child',
    module: 'pg-boss',
    settings: { batchSize: 1000, workers: 1, eachChild: true },
    workloads: ['W2', 'W3'],
  },
  {
    name: 'pg-boss flow',
    module: 'pg-boss',
    settings: { batchSize: 1000, workers: 2, flow: true },
    // Its resolver looks once a second: a few wakes tell as much as many.
    wakeSettings: { parents: 15 },
    workloads: ['W2', 'W3', 'W4'],
  },
  {
    name: 'BullMQ, Redis always',
    module: 'bullmq',
    settings: { concurrency: 200, appendfsync: 'always' },
    wakeSettings: { concurrency: 50 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
    needs: 'redis',
  },
  {
    name: 'BullMQ, Redis everysec',
    module: 'bullmq',
    settings: { concurrency: 200, appendfsync: 'everysec' },
    wakeSettings: { concurrency: 50 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
    needs: 'redis',
  },
  {
    name: 'raw SQL',
    module: 'raw-sql',
    settings: { batchSize: 500, workers: 2 },
    workloads: ['W1', 'W2', 'W3', 'W4'],
    /** Seen beside the others, not counted among the peers: it does none of what they do. */
    ceiling: true,
  },
]

/** The settings of an entry for a workload. */
export function settingsFor(entry, workload) {
  return {
    ...entry.settings,
    ...(workload === 'W1' ? {} : entry.treeSettings),
    ...(workload === 'W4' ? entry.wakeSettings : {}),
  }
}
