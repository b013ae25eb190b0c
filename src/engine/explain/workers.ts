import type { Worker } from '../reads/workers.ts'

/** Those of them that would claim a job of this type and queue. */
export function serving(workers: readonly Worker[], { type, queue }: { type: string; queue: string }) {
  return workers.filter(
    (worker) =>
      !worker.stopping && worker.types.includes(type) && (worker.queues.length === 0 || worker.queues.includes(queue)),
  )
}
