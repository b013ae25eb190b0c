import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { type Logger, pino } from 'pino'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { createDoorbell, type Doorbell, type DoorbellOptions } from '../../src/engine/feed/doorbell.ts'
import { createFeed, type Feed, type FeedBatch, type FeedOptions } from '../../src/engine/feed/hub.ts'
import type { TestDatabase } from '../support/database.ts'

export const silent: Logger = pino({ level: 'silent' })

/** A logger whose lines can be looked at. */
export function listeningLogger(): { logger: Logger; lines: { level: number; msg: string }[] } {
  const lines: { level: number; msg: string }[] = []
  const logger = pino({ level: 'debug' }, { write: (line: string) => lines.push(JSON.parse(line)) })
  return { logger, lines }
}

export type Writer = Pick<pg.Pool, 'query'> | Pick<pg.ClientBase, 'query'>

/** What of an event matters to a test; the rest is made up. */
export interface EventInput {
  jobId?: string
  treeId?: string
  parentId?: string | null
  type?: string
  kind?: string
  to?: string | null
  version?: number
  detail?: unknown
}

/** Writes one event by plain SQL and returns its id. */
export async function writeEvent(to: Writer, event: EventInput = {}): Promise<string> {
  const jobId = event.jobId ?? randomUUID()
  const { rows } = await (to as pg.Pool).query<{ id: string }>(
    `insert into coppice.job_event
       (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor, detail)
     values ($1, $2, $3, $4, $5, 'queued', $6, 'ingest', 0, 1, $7, 'test', $8) returning id`,
    [
      event.kind ?? 'moved',
      jobId,
      event.treeId ?? jobId,
      event.parentId ?? null,
      event.type ?? 'noop',
      event.to === undefined ? 'running' : event.to,
      event.version ?? 1,
      event.detail === undefined ? null : JSON.stringify(event.detail),
    ],
  )
  return rows[0]!.id
}

/** Writes many events in one transaction; returns how many ids there are up to the last. */
export async function writeEvents(to: Writer, count: number): Promise<void> {
  await (to as pg.Pool).query(
    `insert into coppice.job_event (kind, job_id, tree_id, type, "to", phase, wave, attempt, version, actor)
     select 'moved', id, id, 'noop', 'running', 'ingest', 0, 1, 1, 'test'
     from (select gen_random_uuid() as id from generate_series(1, $1)) made`,
    [count],
  )
}

/** One process on a database, as far as the feed goes. */
export interface FeedProcess {
  db: Database
  doorbell: Doorbell
  feed: Feed
  close(): Promise<void>
}

/** Makes a feed with its own pool and doorbell. The doorbell rings and hears only if `doorbell` options are given. */
export async function startFeed(
  database: TestDatabase,
  options: Partial<FeedOptions> & { rings?: Partial<DoorbellOptions> | false } = {},
): Promise<FeedProcess> {
  const { rings = {}, logger = silent, ...feedOptions } = options
  const db = openDatabase({ connectionString: database.connectionString, schema: database.schema })
  const bell = { connectionString: database.connectionString, schema: database.schema, logger, ...(rings || {}) }
  const doorbell = createDoorbell(bell)
  if (rings !== false) await doorbell.start()
  const feed = createFeed({ db, doorbell, logger, ...feedOptions })
  await feed.start()
  return {
    db,
    doorbell,
    feed,
    async close() {
      await feed.stop()
      await doorbell.stop()
      await db.close()
    },
  }
}

/** The next batch; throws when the subscription is over. */
export async function nextBatch(batches: AsyncIterator<FeedBatch, undefined>): Promise<FeedBatch> {
  const { value, done } = await batches.next()
  if (done === true) throw new Error('The subscription is over.')
  return value
}

/** Ids of events until there are `count`, with the cursor after them. */
export async function collect(batches: AsyncIterator<FeedBatch, undefined>, count: number) {
  const ids: string[] = []
  let cursor = ''
  while (ids.length < count) {
    const batch = await nextBatch(batches)
    if (batch.ended !== null) throw new Error(`Ended: ${batch.ended}`)
    ids.push(...batch.events.map((event) => event.id))
    cursor = batch.cursor
  }
  return { ids, cursor }
}
