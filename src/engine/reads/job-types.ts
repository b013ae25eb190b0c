import type { Queryable } from '../../db/database.ts'
import type { JobRegistry } from '../definition/job-registry.ts'
import { jsonSchemaOf } from '../definition/standard-schema.ts'
import type { Json } from '../job.ts'
import { liveWorkers } from './workers.ts'

/** A job type that some live process has defined. */
export interface JobType {
  name: string
  /** JSON Schema of the payload; null where it cannot be told: the type is not known here, or has no schema that can. */
  payloadSchema: Json
  /** Live workers that run it. */
  workers: number
}

/** The types that live workers run or that this process knows, by name. */
export async function jobTypes(q: Queryable, jobs: JobRegistry): Promise<JobType[]> {
  const workers = new Map(jobs.types.map((name) => [name, 0]))
  for (const { types } of await liveWorkers(q)) {
    for (const name of types) workers.set(name, (workers.get(name) ?? 0) + 1)
  }
  return [...workers]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, count]) => ({
      name,
      payloadSchema: jsonSchemaOf(jobs.definition(name)?.payload),
      workers: count,
    }))
}
