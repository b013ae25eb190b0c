import type { GraphQLResolveInfo } from 'graphql'
import { NotFoundError } from '../engine/errors.ts'
import { formatJobId } from '../engine/ids.ts'
import type { Job } from '../engine/job.ts'
import { treeIdOf } from '../engine/reads/tree.ts'
import type { TreeUpdate } from '../engine/watch/tree-update.ts'
import { type Context, loadersOf } from './context.ts'
import { jobGlobalId, jobIdArg } from './global-ids.ts'
import { CLOSING, Stream } from './stream.ts'

/** A tree as it is, then what changes in it. */
export async function watchTree(
  _root: unknown,
  args: { id: string; after?: string | null | undefined },
  context: Context,
  info: GraphQLResolveInfo,
): Promise<Stream<TreeUpdate>> {
  const { engine } = context
  const id = jobIdArg(args.id)
  const { heavy } = loadersOf(context, info)
  // Refused before anything is streamed; so is a cursor that makes no sense, since `watchTree` throws at once for it.
  if ((await treeIdOf(engine.database, id)) === null) throw new NotFoundError(formatJobId(id))
  return new Stream(context, (stop) => {
    return treeFrames(engine.watchTree(id, { after: args.after, heavy, signal: stop }), stop)
  })
}

async function* treeFrames(updates: AsyncIterable<TreeUpdate>, stop: AbortSignal): AsyncGenerator<TreeUpdate> {
  let last: TreeUpdate | undefined
  for await (const update of updates) {
    last = update
    yield update
    if (update.ended) return
  }
  // Before a first frame there is nowhere to go on from but where the client has begun.
  if (stop.reason === CLOSING && last !== undefined) {
    yield { ...last, reset: false, jobs: [], removed: [], caughtUp: false, ended: 'shutdown' }
  }
}

/** The jobs of a frame, not to be read again by whatever fields lead to them. */
export function updatedJobs({ jobs }: TreeUpdate, _args: unknown, context: Context, info: GraphQLResolveInfo): Job[] {
  loadersOf(context, info).prime(jobs)
  return jobs
}

/** Global ids of the jobs that went. */
export function removedIds({ removed }: TreeUpdate): string[] {
  return removed.map((id) => jobGlobalId(id))
}
