import { currentSnapshot } from '../engine/reads/tree.ts'
import type { Context } from './context.ts'

/** Feed cursor of the present end of the log. */
export async function presentCursor({ engine }: Context): Promise<string> {
  return engine.feed.cursorAt(await currentSnapshot(engine.database))
}
