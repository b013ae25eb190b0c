import type { Database } from '../db/database.ts'
import type { Engine } from './engine.ts'
import { ValidationError } from './errors.ts'
import type { Feed, ReadFeedOptions, SubscribeOptions } from './feed/hub.ts'
import { checkedOptions } from './input/check.ts'
import { FEED_OPTIONS, WATCH_STATS_OPTIONS, WATCH_TREE_OPTIONS } from './input/options.ts'
import type { Stats } from './stats/stats.ts'
import { createStatsWatch } from './stats/watch-stats.ts'
import { createTreeWatch } from './watch/watch-tree.ts'

/** What an engine has for those who watch. */
export type EngineWatch = Pick<Engine, 'feed' | 'watchTree' | 'stats' | 'watchStats'>

/** What the watching needs of an engine. */
export interface WatchParts {
  db: Database
  hub: Feed
  stats(): Promise<Stats>
}

/** The feed of an engine and what is made of it. What comes in is checked before anything is done. */
export function createEngineWatch({ db, hub, stats }: WatchParts): EngineWatch {
  const watchTree = createTreeWatch(db, hub)
  const watchStats = createStatsWatch(stats)
  const subscribe = (options?: SubscribeOptions) => hub.subscribe(checkedOptions(FEED_OPTIONS, options))
  return {
    feed: Object.assign(subscribe.bind(undefined), {
      subscribe,
      read: async (options?: ReadFeedOptions) => hub.read(checkedOptions(FEED_OPTIONS, options)),
      cursorAt(snapshot: string) {
        if (typeof snapshot !== 'string') throw ValidationError.of('snapshot', 'must be a text')
        return hub.cursorAt(snapshot)
      },
      stats: hub.stats.bind(hub),
    }),
    watchTree: (id, options) => watchTree(id, checkedOptions(WATCH_TREE_OPTIONS, options)),
    stats,
    watchStats: (options) => watchStats(checkedOptions(WATCH_STATS_OPTIONS, options)),
  }
}
