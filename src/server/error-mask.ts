import { randomUUID } from 'node:crypto'
import { GraphQLError } from 'graphql'
import type { Logger } from 'pino'
import { errorCodeOf, isConnectionError } from '../db/connection-errors.ts'
import { EngineError } from '../engine/errors.ts'
import type { ErrorCodeName } from '../schema/enums.ts'
import { type Limit, LimitExceededError } from './limits.ts'
import type { RefusalReason } from './refusals.ts'

/** What clients are told of an error. */
interface PublicError {
  code: ErrorCodeName
  message: string
  /** HTTP status where the error is the whole answer. */
  status: number
  /** Why it is refused, for the figures. */
  refused?: RefusalReason
}

/** Makes of any error the one that clients see. */
export type ErrorMask = (error: unknown) => GraphQLError

/**
 * The mask of top-level errors: each gets its `extensions.code`; faults of ours lose their text, which is logged with
 * the `errorId` that the client gets.
 *
 * @param refused told each error that is the caller's, once.
 */
export function createErrorMask(logger: Logger, refused: (reason: RefusalReason) => void = () => {}): ErrorMask {
  const masked = new WeakSet<object>()
  return (error) => {
    const cause = causeOf(error)
    // Also where it was wrapped again since, as graphql-ws does with the error of a stream.
    for (const one of [error, cause]) if (one instanceof GraphQLError && masked.has(one)) return one
    const located = error instanceof GraphQLError ? error : undefined
    const known = explain(cause, located)
    const { code, message, status } = known ?? INTERNAL
    if (known?.refused !== undefined) refused(known.refused)
    const errorId = known ? undefined : randomUUID()
    if (errorId !== undefined) logger.error({ err: cause, errorId, path: located?.path }, 'an API request failed')
    const result = new GraphQLError(message, {
      ...placeOf(located),
      extensions: {
        code,
        ...(errorId !== undefined && { errorId }),
        // An error of a field leaves the rest of the answer intact: no business of the status line.
        ...(located?.path === undefined && { http: statusLine(located, status, code) }),
      },
    })
    masked.add(result)
    return result
  }
}

const INTERNAL: PublicError = { code: 'INTERNAL', message: 'Internal error.', status: 500 }

/** What was thrown at first, below the errors that graphql wrapped around it. */
function causeOf(error: unknown): unknown {
  let cause = error
  while (cause instanceof GraphQLError && cause.originalError) cause = cause.originalError
  return cause
}

/** Null for faults of ours. */
function explain(cause: unknown, located: GraphQLError | undefined): PublicError | null {
  if (cause instanceof GraphQLError) return explainGraphQLError(cause, located)
  if (cause instanceof LimitExceededError) {
    const { code, limit, message } = cause
    return { code, message, status: STATUS_OF_LIMIT[limit] ?? 400, refused: limit }
  }
  if (isConnectionError(cause)) {
    return { code: 'UNAVAILABLE', message: 'The database cannot be reached. Try again.', status: 503 }
  }
  // Input that is nested deeper than the stack goes, found while it is read.
  if (cause instanceof RangeError && cause.message.startsWith('Maximum call stack')) {
    return { code: 'LIMIT_EXCEEDED', message: 'This is nested too deeply.', status: 400, refused: 'depth' }
  }
  const code = errorCodeOf(cause)
  const message = cause instanceof Error ? cause.message : ''
  switch (code) {
    case 'BAD_REQUEST':
    case 'VALIDATION':
      return { code: 'BAD_REQUEST', message, status: 400, refused: 'bad_request' }
    case 'UNAUTHENTICATED':
      return { code, message, status: 401, refused: 'unauthenticated' }
    case 'FORBIDDEN':
      return { code, message, status: 403, refused: 'forbidden' }
    case 'UNAVAILABLE':
      return { code, message, status: 503 }
    case 'NOT_FOUND':
    case 'INVALID_STATE':
    case 'PARENT_GONE':
      return cause instanceof EngineError ? { code, message, status: 400 } : null
    case 'JOB_CYCLE':
      return { code: 'INVALID_STATE', message, status: 400 }
    // PostgreSQL: text with NUL characters; statement_timeout.
    case '22021':
    case '22P05':
      return { code: 'BAD_REQUEST', message: NUL, status: 400, refused: 'bad_request' }
    case '57014':
      return { code: 'LIMIT_EXCEEDED', message: 'This took too long.', status: 503, refused: 'time' }
    default:
      return null
  }
}

// Errors that Yoga and graphql themselves make.
function explainGraphQLError(cause: GraphQLError, located: GraphQLError | undefined): PublicError | null {
  const status = httpOf(cause).status
  // The outer message says where in the document the inner one belongs.
  const message = located?.message ?? cause.message
  if (status === 413) return { code: 'LIMIT_EXCEEDED', message, status, refused: 'size' }
  // The only one of Yoga's that forbids is its CSRF prevention.
  if (status === 403) return { code: 'FORBIDDEN', message, status, refused: 'csrf' }
  const refused = 'bad_request'
  if (status !== undefined && status >= 400 && status < 500) return { code: 'BAD_REQUEST', message, status, refused }
  // Of a field: a value that could not be written out is our fault; an argument that could not be read names its node.
  if (located?.path !== undefined && cause.nodes === undefined) return null
  return { code: 'BAD_REQUEST', message, status: 400, refused }
}

const NUL = 'A text contains a NUL character, which cannot be stored.'
/** Where it is not 400. */
const STATUS_OF_LIMIT: Partial<Record<Limit, number>> = { size: 413, operations: 429, time: 503 }

/** How HTTP tells of an error that is the whole answer. */
function statusLine(located: GraphQLError | undefined, status: number, code: ErrorCodeName) {
  const { spec, headers } = httpOf(located)
  return {
    status,
    headers: { ...headers, ...(code === 'UNAUTHENTICATED' && { 'www-authenticate': 'Bearer' }) },
    // With 200, as the specification has it, where there was a document at least.
    ...(spec && located?.source !== undefined && { spec }),
  }
}

/** Where in the document, and where in the answer. */
export function placeOf(error: GraphQLError | undefined) {
  return {
    nodes: error?.nodes ?? null,
    source: error?.source ?? null,
    positions: error?.positions ?? null,
    path: error?.path ?? null,
  }
}

function httpOf(error: GraphQLError | undefined): {
  status?: number
  headers?: Record<string, string>
  spec?: boolean
} {
  return (error?.extensions?.http as { status?: number } | undefined) ?? {}
}
