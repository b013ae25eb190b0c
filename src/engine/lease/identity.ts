/** What a worker says of itself in its row. */
export interface WorkerIdentity {
  /** Incarnation: a fresh UUID each time, never used again once its row is dead or gone. */
  id: string
  host: string
  pid: number
  /** Queues that it serves; empty: all. */
  queues: readonly string[]
  types: readonly string[]
  /** Most jobs at once. */
  concurrency: number
  /** How often it beats, in ms. Two of these without a beat, and it is dead. */
  intervalMs: number
  /** The newest schema that the program knows. */
  schemaVersion: number
}
