import type { Database } from '../db/database.ts'
import { channelName } from './feed/channel.ts'
import { coalesce } from './feed/coalesce.ts'

/** Rings within this time become one, in ms. */
const COALESCE_MS = 20

/** Rings the doorbell of other processes from an engine that was not started, and so has no doorbell connection. */
export interface OutsideBell {
  /** Call it after a commit. */
  ring(): void
  /** The last ring still goes out. */
  stop(): Promise<void>
}

export function createOutsideBell(db: Database): OutsideBell {
  let sending: Promise<unknown> = Promise.resolve()
  const send = () => {
    // A ring that gets lost costs a poll.
    sending = db.pool.query('select pg_notify($1, $2)', [channelName(db.schema), '']).catch(() => {})
  }
  const bell = coalesce(send, COALESCE_MS)
  return {
    ring: () => bell.call(),
    async stop() {
      if (bell.cancel()) send()
      await sending
    },
  }
}
