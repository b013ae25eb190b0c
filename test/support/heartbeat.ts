import { randomUUID } from 'node:crypto'
import { type Heartbeat, startHeartbeat } from '../../src/engine/lease/heartbeat.ts'
import type { WorkerIdentity } from '../../src/engine/lease/identity.ts'
import type { BeatReport } from '../../src/engine/lease/messages.ts'

/** A heartbeat that notes everything it is told. */
export interface WatchedHeartbeat {
  readonly id: string
  readonly identity: WorkerIdentity
  readonly heartbeat: Heartbeat
  readonly reports: BeatReport[]
  readonly failures: Error[]
  /** How often it was told that it is lost. */
  readonly lost: number
}

/** Starts a heartbeat of a worker of which only what matters to the test need be said. */
export async function createWatchedHeartbeat(
  database: { connectionString: string; schema: string },
  worker: Partial<WorkerIdentity> = {},
): Promise<WatchedHeartbeat> {
  const identity: WorkerIdentity = {
    id: randomUUID(),
    host: 'test',
    pid: process.pid,
    queues: [],
    types: [],
    concurrency: 1,
    intervalMs: 1000,
    schemaVersion: 1,
    ...worker,
  }
  const reports: BeatReport[] = []
  const failures: Error[] = []
  let lost = 0
  const { connectionString, schema } = database
  const heartbeat = await startHeartbeat(
    { connectionString, schema, worker: identity },
    {
      beat: (report) => void reports.push(report),
      failing: (error) => void failures.push(error),
      lost: () => {
        lost += 1
      },
    },
  )
  return {
    id: identity.id,
    identity,
    heartbeat,
    reports,
    failures,
    get lost() {
      return lost
    },
  }
}
