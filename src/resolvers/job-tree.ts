import type { GraphQLResolveInfo } from 'graphql'
import type { Job } from '../engine/job.ts'
import { pageRequest } from '../engine/reads/page.ts'
import type { StateCounts } from '../engine/reads/state-counts.ts'
import { TREE_PAGE_LIMITS, treeIdOf } from '../engine/reads/tree.ts'
import type { JobState } from '../engine/states.ts'
import { BadRequestError } from './bad-request.ts'
import { type Connection, connectionOf } from './connection.ts'
import { type Context, loadersOf } from './context.ts'
import { jobIdArg } from './global-ids.ts'

type Info = GraphQLResolveInfo

/** A tree that there is a trace of; its fields read it, all of them in one snapshot. */
export interface JobTree {
  treeId: string
}

/** Arguments of a tree's flat list. */
export interface TreeNodesArgs {
  first: number
  after?: string | null | undefined
  states?: readonly JobState[] | null | undefined
  maxDepth?: number | null | undefined
}

/** The tree that a job belongs to; null if there is no trace of it. */
export async function findTree(_root: unknown, args: { id: string }, context: Context): Promise<JobTree | null> {
  const treeId = await treeIdOf(context.engine.database, jobIdArg(args.id))
  return treeId === null ? null : { treeId }
}

/** The root; null if it was deleted. */
export function treeRoot({ treeId }: JobTree, _args: unknown, context: Context, info: Info): Promise<Job | null> {
  return loadersOf(context, info).trees.root(treeId)
}

/** The whole tree by state. */
export function treeCounts({ treeId }: JobTree, _args: unknown, context: Context, info: Info): Promise<StateCounts> {
  return loadersOf(context, info).trees.counts(treeId)
}

/** Feed cursor of the snapshot that the tree is read in. */
export async function treeCursor(_tree: JobTree, _args: unknown, context: Context, info: Info): Promise<string> {
  return context.engine.feed.cursorAt(await loadersOf(context, info).trees.snapshot())
}

/** A page of the tree's jobs by depth, then id. */
export async function treeNodes(
  { treeId }: JobTree,
  args: TreeNodesArgs,
  context: Context,
  info: Info,
): Promise<Connection<Job>> {
  const maxDepth = args.maxDepth ?? null
  if (maxDepth !== null && maxDepth < 0) throw new BadRequestError('`maxDepth` must not be negative.')
  const page = pageRequest({ first: args.first, after: args.after }, TREE_PAGE_LIMITS)
  const list = { treeId, page, states: args.states ?? null, maxDepth }
  return connectionOf(await loadersOf(context, info).trees.nodes(list))
}
