import type { FeedBatch } from '../../engine/feed/batch.ts'
import type { TreeReading } from './read.ts'

/** Where a watched tree comes from. */
export interface TreeSource {
  /** Reads the tree as it is; undefined when its root is gone. */
  read(): Promise<TreeReading | undefined>
  /** What changes in the tree: from the snapshot of a reading on, or from now. */
  changes(signal: AbortSignal, snapshot?: string): AsyncIterable<FeedBatch>
  /** What to call some jobs: type and key. */
  names(jobIds: readonly string[]): Promise<Map<string, string>>
}
