import { Counter, chunks, now, quantiles, round } from './measure.mjs'

/** Sizes of a full run; `--scale 0.1` makes a tenth of each. */
export const SIZES = {
  W1: { jobs: 20_000 },
  W2: { parents: 1, children: 10_000 },
  W3: { parents: 1_000, children: 10 },
  W4: { parents: 200, children: 2 },
}

/** What a workload does, for the tables. */
export const TITLES = {
  W1: 'flat jobs',
  W2: 'one parent, many children',
  W3: 'many parents, ten children each',
  W4: 'wake latency: last child returns → first line of the aggregate',
}

export function scaled(workload, scale) {
  const size = { ...SIZES[workload] }
  const field = { W1: 'jobs', W2: 'children', W3: 'parents', W4: 'parents' }[workload]
  size[field] = Math.max(2, Math.round(size[field] * scale))
  return size
}

const JOBS_PER_CALL = 1000
const TREES_PER_CALL = 100

/**
 * Runs one workload against one peer. A peer is opened with its handlers' code and offers
 *   addFlat(numbers)            enqueues flat jobs, one call
 *   addTrees(numbers, children) enqueues parents with as many children each, one call
 *   work()                      begins to work
 *   committed(jobs)             resolves when the ends of all `jobs` are committed; called after the last handler ran
 *   close()
 */
export async function runWorkload(workload, open, size) {
  const flat = new Counter()
  const parents = new Counter()
  const wakes = []
  let lastChild = 0
  const peer = await open({
    flat: () => flat.add(),
    child: () => {
      lastChild = now()
    },
    parent: () => {
      wakes.push(now() - lastChild)
      parents.add()
    },
  })
  try {
    if (workload === 'W1') return await runFlat(peer, size, flat)
    if (workload === 'W4') return await runWakes(peer, size, parents, wakes)
    return await runTrees(peer, size, parents)
  } finally {
    await peer.close()
  }
}

async function runFlat(peer, { jobs }, done) {
  const enqueueing = now()
  for (const numbers of chunks(jobs, JOBS_PER_CALL)) await peer.addFlat(numbers)
  const enqueued = now() - enqueueing
  const working = now()
  await peer.work()
  await done.reaches(jobs)
  await peer.committed(jobs)
  const worked = now() - working
  return { jobs, seconds: round(worked / 1000, 3), ...rate('jobs', jobs, worked), ...rate('enqueued', jobs, enqueued) }
}

async function runTrees(peer, { parents, children }, done) {
  const jobs = parents * (children + 1)
  await peer.work()
  const started = now()
  for (const numbers of chunks(parents, TREES_PER_CALL)) await peer.addTrees(numbers, children)
  await done.reaches(parents)
  await peer.committed(jobs)
  const took = now() - started
  return { parents, children, seconds: round(took / 1000, 3), ...rate('jobs', jobs, took) }
}

// One tree after the other: nothing else is under way when the last child ends.
async function runWakes(peer, { parents, children }, done, wakes) {
  await peer.work()
  const started = now()
  for (let number = 0; number < parents; number++) {
    await peer.addTrees([number], children)
    await done.reaches(number + 1)
  }
  return { parents, children, seconds: round((now() - started) / 1000, 3), wakeMs: quantiles(wakes) }
}

function rate(what, count, ms) {
  return { [`${what}PerSecond`]: Math.round(count / (ms / 1000)) }
}
