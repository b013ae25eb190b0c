import type { Stats as EngineStats } from '../engine/stats/stats.ts'
import { emittedWakes } from '../resolvers/stats.ts'
import { builder } from './builder.ts'
import { WakeSource } from './enums.ts'
import { StateCounts } from './state-counts.ts'

const WakeStats = builder.objectRef<EngineStats['wakes']>('WakeStats').implement({
  description:
    'The wake counters, since the database was made. What other processes than the one that answers counted may be ' +
    'five seconds old.',
  fields: (t) => ({
    candidates: t.expose('candidates', { type: 'BigInt', description: 'Stuck parents that ticks have found.' }),
    emitted: t.field({
      type: 'BigInt',
      description: 'Wakes delivered.',
      args: { source: t.arg({ type: WakeSource, description: 'Only by this source.' }) },
      resolve: emittedWakes,
    }),
    deduplicated: t.expose('deduplicated', { type: 'BigInt', description: 'Wakes found to be delivered already.' }),
    assigneeUnresolved: t.expose('assigneeUnresolved', {
      type: 'BigInt',
      description: 'Wakes held back because the assignee is not ACTIVE or unknown.',
    }),
    superseded: t.expose('superseded', {
      type: 'BigInt',
      description: 'Wakes given up because the child set changed meanwhile.',
    }),
    driftRepaired: t.expose('driftRepaired', { type: 'BigInt', description: 'Wrong openChildren put right.' }),
    stuck: t.exposeInt('stuck', { description: 'Parents the last tick found stuck.' }),
    lastTickAt: t.expose('lastTickAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When the reconciler last ticked; null before the first.',
    }),
    lastTick: t.field({
      type: 'Duration',
      nullable: true,
      description: 'How long that took; null before the first.',
      resolve: ({ lastTickMs }) => lastTickMs && Math.round(lastTickMs),
    }),
  }),
})

const FeedStats = builder.objectRef<EngineStats['feed']>('FeedStats').implement({
  description: 'The feed of one process.',
  fields: (t) => ({
    listening: t.exposeBoolean('listening', { description: 'LISTEN works; false is polling.' }),
    reconnects: t.field({
      type: 'BigInt',
      description: 'Times the listener was lost and found.',
      resolve: ({ reconnects }) => BigInt(reconnects),
    }),
    lag: t.field({
      type: 'Duration',
      description: 'How far its reader is behind.',
      resolve: ({ lagMs }) => Math.round(lagMs),
    }),
    heldUpBy: t.field({
      type: 'Duration',
      nullable: true,
      description: 'Age of the oldest open transaction it waits on; null if none.',
      resolve: ({ heldUpByMs }) => heldUpByMs && Math.round(heldUpByMs),
    }),
    subscribers: t.exposeInt('subscribers', { description: 'Open subscriptions.' }),
    ringMisses: t.field({
      type: 'BigInt',
      description: 'Reads that the ring could not serve.',
      resolve: ({ ringMisses }) => BigInt(ringMisses),
    }),
  }),
})

export const Stats = builder.objectRef<EngineStats>('Stats').implement({
  description:
    'The installation in numbers. Jobs and wakes are of the whole database; feed is of the process that answers.',
  fields: (t) => ({
    at: t.expose('at', { type: 'DateTime', description: 'When they were read.' }),
    jobs: t.expose('jobs', {
      type: StateCounts,
      description:
        'All jobs by state. The active states are counted anew, up to a tenth of the time. Terminal states are counted ' +
        'exactly, but not each time: their counts may be as old as twenty times what counting takes, a moment for 10,000 ' +
        'jobs and ten seconds or so for a million; `total` is a sum of both.',
    }),
    oldestDueAt: t.expose('oldestDueAt', {
      type: 'DateTime',
      nullable: true,
      description: 'runAt of the oldest job that is due and not claimed; null if none.',
    }),
    oldestWaitingAt: t.expose('oldestWaitingAt', {
      type: 'DateTime',
      nullable: true,
      description: 'Since when the longest-waiting parent waits; null if none.',
    }),
    wakes: t.expose('wakes', { type: WakeStats, description: 'The wake counters.' }),
    feed: t.expose('feed', { type: FeedStats, description: 'The event feed.' }),
  }),
})
