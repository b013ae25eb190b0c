import { latestVersion, schemaVersion } from '../db/migrate.ts'
import type { ApiEngine } from '../resolvers/api-engine.ts'

/** Longest wait for the database's answer, in milliseconds. */
const DEADLINE_MS = 2000

/** Whether this process can serve, and what it found. */
export interface Readiness {
  ready: boolean
  /** Reached within two seconds. */
  database: 'reached' | 'unreachable'
  /** The schema is at the version that this program knows. */
  schema: 'current' | 'older' | 'newer' | 'unknown'
  /** How news of other processes come: by LISTEN, or by polling. */
  feed: 'listening' | 'polling'
  stopping: boolean
}

/** Looks whether this process can serve. */
export async function readiness(engine: ApiEngine, stopping: boolean): Promise<Readiness> {
  const schema = await withinDeadline(versionOf(engine))
  return {
    ready: schema === 'current' && !stopping,
    database: schema === null ? 'unreachable' : 'reached',
    schema: schema ?? 'unknown',
    feed: engine.doorbell.listening ? 'listening' : 'polling',
    stopping,
  }
}

async function versionOf({ database }: ApiEngine): Promise<'current' | 'older' | 'newer'> {
  const [found, known] = await Promise.all([schemaVersion(database.pool, database.schema), latestVersion()])
  if (found === known) return 'current'
  return found < known ? 'older' : 'newer'
}

async function withinDeadline<T>(promise: Promise<T>): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, DEADLINE_MS, null)
  })
  return Promise.race([promise.catch(() => null), late]).finally(() => clearTimeout(timer))
}
