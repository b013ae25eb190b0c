import type { GraphQLResolveInfo } from 'graphql'
import type { ApiEngine } from './api-engine.ts'
import { heavyOf } from './heavy.ts'
import { Loaders } from './loaders.ts'
import { ForbiddenError, includesRole, type Role, type Viewer } from './viewer.ts'

/** What the resolvers of one operation share. */
export interface Context {
  readonly engine: ApiEngine
  readonly viewer: Viewer
  /** Aborted when the server begins to stop: subscriptions send their last frame and end. */
  readonly closing: AbortSignal
  /** Aborted, with the error to end with, when what the caller showed is over; absent where the connection is cut then. */
  readonly expired?: AbortSignal
  /** Made on first use. */
  loaders?: Loaders
}

/** The loaders of an operation. */
export function loadersOf(context: Context, info: GraphQLResolveInfo): Loaders {
  context.loaders ??= new Loaders(context.engine, heavyOf(info))
  return context.loaders
}

/**
 * Lets a caller pass who has at least this role.
 *
 * @throws {ForbiddenError}
 */
export function authorise(context: Context, role: Role): void {
  if (!includesRole(context.viewer, role)) throw new ForbiddenError(role)
}
