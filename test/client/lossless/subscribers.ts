import { WebSocket } from 'ws'
import {
  type Client,
  createClient,
  createTreeState,
  type JobEventFilter,
  sse,
  type TreeState,
  webSocket,
} from '../../../src/client/index.ts'

/** What happened to all subscribers together. */
export interface Tally {
  /** Times that a subscription broke off; each tries until it is back. */
  reconnects: number
  /** Times that one was told that events are missing. */
  gaps: number
}

/** Follows events, and keeps the numbers of those that it was told, in order. */
export interface EventSubscriber {
  readonly name: string
  readonly told: readonly number[]
  /** Which rows of the log it is to be told, as SQL. */
  readonly where: string
  /** The first frame has come. */
  readonly begun: boolean
  /** What ended it: nothing should. */
  readonly failure: unknown
}

/** Follows a tree. */
export interface TreeSubscriber {
  readonly name: string
  readonly root: string
  readonly tree: TreeState<SeenJob>
  readonly failure: unknown
}

export interface SeenJob {
  id: string
  version: number
  state: string
  phase: string
  depth: number
  childCount: number
  openChildren: number
}

/** What is asked of a job in a tree. */
export const SEEN_FIELDS = 'state phase depth childCount openChildren'

/** What subscribers ask for, in turn, and the rows of the log that are. */
const INTERESTS: { filter: JobEventFilter | undefined; where: string }[] = [
  { filter: undefined, where: 'true' },
  { filter: undefined, where: 'true' },
  { filter: { types: ['leaf'] }, where: `type = 'leaf'` },
  { filter: { roots: true }, where: 'parent_id is null' },
]

/** The client's own document, but what is told goes by nothing that would take out what comes twice. */
const EVENTS = `subscription ($filter: JobEventFilter, $after: String) {
  jobEvents(filter: $filter, after: $after) { events { id } cursor caughtUp ended }
}`

interface Frame {
  jobEvents: { events: { id: string }[]; ended: string | null }
}

export interface SubscribeOptions {
  /** Address of the API over HTTP. */
  url: string
  signal: AbortSignal
  tally: Tally
}

/** One of two transports in turn; each client has connections of its own. `link` is up while frames come. */
function connect(n: number, { url, tally }: SubscribeOptions): { name: string; client: Client; link: { up: boolean } } {
  const link = { up: false }
  const overSse = n % 2 === 0
  const transport = overSse
    ? sse({ url })
    : webSocket({ url: url.replace('http', 'ws'), webSocketImpl: WebSocket, silenceMs: 5_000 })
  const onRetry = () => {
    if (link.up) tally.reconnects++
    link.up = false
  }
  const client = createClient({ transport, backoff: { first: 20, most: 500 }, onRetry })
  return { name: `${overSse ? 'SSE' : 'WebSocket'} ${n}`, client, link }
}

/** Half of them by `watchEvents`; the others by `subscribe`, which shows what comes twice. */
export function followEvents(n: number, options: SubscribeOptions): EventSubscriber {
  const { signal, tally } = options
  const { name, client, link } = connect(n, options)
  const { filter, where } = INTERESTS[Math.floor(n / 4) % INTERESTS.length]!
  const told: number[] = []
  const subscriber = { name, told, where, begun: false, failure: undefined as unknown }
  const take = (events: readonly { id: string }[]) => {
    link.up = true
    subscriber.begun = true
    for (const { id } of events) told.push(Number(id.replace('EV_', '')))
  }
  async function watch(): Promise<void> {
    for await (const frame of client.watchEvents({ fields: 'version', filter, signal })) {
      if (frame.type === 'gap') tally.gaps++
      else take(frame.events)
    }
  }
  async function subscribe(): Promise<void> {
    for await (const { jobEvents } of client.subscribe<Frame>({ query: EVENTS, variables: { filter } }, { signal })) {
      if (jobEvents.ended === 'CURSOR_EXPIRED') tally.gaps++
      take(jobEvents.events)
    }
  }
  // Both ways over both transports.
  const run = Math.floor(n / 2) % 2 === 0 ? watch : subscribe
  run().catch((error: unknown) => {
    subscriber.failure = error
  })
  return subscriber
}

export function followTree(n: number, root: string, options: SubscribeOptions): TreeSubscriber {
  const { name, client, link } = connect(n, options)
  const tree = createTreeState<SeenJob>()
  const subscriber = { name, root, tree, failure: undefined as unknown }
  async function watch(): Promise<void> {
    const updates = client.watchTree<SeenJob>(root, { fields: SEEN_FIELDS, signal: options.signal })
    for await (const update of updates) {
      link.up = true
      tree.apply(update)
    }
  }
  watch().catch((error: unknown) => {
    subscriber.failure = error
  })
  return subscriber
}
