import type { Logger } from 'pino'
import type { Engine } from '../../engine/engine.ts'
import { createFeed } from '../../engine/feed/hub.ts'
import { NO_HEAVY } from '../../engine/reads/columns.ts'
import { jobsById } from '../../engine/reads/jobs-by-id.ts'
import { readTree } from './read.ts'
import type { TreeSource } from './source.ts'

/**
 * A tree as an engine sees it that was not started, with a feed of its own: who only looks on takes no part in
 * maintenance. The engine's stop ends the doorbell.
 */
export async function engineSource(
  { database, doorbell }: Engine,
  treeId: string,
  logger: Logger,
): Promise<TreeSource & { close(): Promise<void> }> {
  const feed = createFeed({ db: database, doorbell, logger })
  await doorbell.start()
  await feed.start()
  return {
    read: () => readTree(database, treeId),
    changes: (signal, snapshot) =>
      feed.subscribe({
        filter: { treeId },
        signal,
        ...(snapshot !== undefined && { after: feed.cursorAt(snapshot) }),
      }),
    async names(jobIds) {
      const jobs = await jobsById(database, jobIds, NO_HEAVY)
      return new Map(jobs.map(({ id, type, key }) => [id, key === null ? type : `${type} ${key}`]))
    },
    close: () => feed.stop(),
  }
}
