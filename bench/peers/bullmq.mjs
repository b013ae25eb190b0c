import { FlowProducer, Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { Counter } from '../measure.mjs'

/** On Redis with an append-only file: `appendfsync` is always, or everysec, which may lose a second. */
export async function open({ redis: ports }, { concurrency, appendfsync }, handlers) {
  const connection = { host: '127.0.0.1', port: ports[appendfsync] }
  const redis = new Redis(connection)
  await redis.flushall()
  redis.disconnect()
  const queue = new Queue('flat', { connection })
  await queue.waitUntilReady()
  const flows = new FlowProducer({ connection })
  await flows.waitUntilReady()
  const completed = new Counter()
  const workers = []
  const work = async (name, handler) => {
    const worker = new Worker(name, async () => handler(), { connection, concurrency })
    worker.on('completed', () => completed.add())
    worker.on('error', (error) => console.error(error.message))
    workers.push(worker)
    await worker.waitUntilReady()
  }
  const tree = (parent, children) => ({
    name: 'parent',
    queueName: 'parent',
    data: { parent },
    children: Array.from({ length: children }, (_, index) => ({
      name: 'child',
      queueName: 'child',
      data: { parent, index },
    })),
  })
  return {
    addFlat: (numbers) => queue.addBulk(numbers.map((number) => ({ name: 'flat', data: { number } }))),
    addTrees: (numbers, children) => flows.addBulk(numbers.map((parent) => tree(parent, children))),
    async work() {
      await Promise.all([work('flat', handlers.flat), work('child', handlers.child), work('parent', handlers.parent)])
    },
    // `completed` is told after Redis has answered.
    committed: (jobs) => completed.reaches(jobs),
    async close() {
      await Promise.all(workers.map((worker) => worker.close()))
      await Promise.all([queue.close(), flows.close()])
    },
  }
}
