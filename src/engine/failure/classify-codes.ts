import type { FailureCode } from '../job.ts'

function table(entries: Partial<Record<FailureCode, string>>): ReadonlyMap<string, FailureCode> {
  const map = new Map<string, FailureCode>()
  for (const [code, names] of Object.entries(entries)) {
    for (const name of names.trim().split(/\s+/)) map.set(name, code as FailureCode)
  }
  return map
}

/** `error.code` of Node's system calls, DNS, streams, undici, and of this engine's own errors. */
export const BY_ERROR_CODE = table({
  NETWORK: `
    ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ENOTCONN ENOTFOUND EAI_AGAIN EAI_FAIL EAI_NODATA EAI_NONAME
    EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENETRESET EADDRNOTAVAIL EPROTO
    ENODATA ESERVFAIL EREFUSED EBADRESP
    UND_ERR_SOCKET UND_ERR_CLOSED UND_ERR_DESTROYED UND_ERR_RESPONSE UND_ERR_RES_CONTENT_LENGTH_MISMATCH
    ERR_STREAM_PREMATURE_CLOSE ERR_SOCKET_CLOSED ERR_SOCKET_CONNECTION_TIMEOUT ERR_HTTP2_STREAM_ERROR
    ERR_HTTP2_SESSION_ERROR ERR_HTTP2_GOAWAY_SESSION ERR_TLS_CERT_ALTNAME_INVALID CERT_HAS_EXPIRED
    DEPTH_ZERO_SELF_SIGNED_CERT SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_VERIFY_LEAF_SIGNATURE HPE_INVALID_CONSTANT`,
  TIMEOUT: `
    ETIMEDOUT ETIMEOUT ESOCKETTIMEDOUT ABORT_ERR ERR_HTTP_REQUEST_TIMEOUT ERR_TLS_HANDSHAKE_TIMEOUT
    UND_ERR_CONNECT_TIMEOUT UND_ERR_HEADERS_TIMEOUT UND_ERR_BODY_TIMEOUT UND_ERR_ABORTED WAIT_TIMEOUT`,
  DATABASE: 'UNAVAILABLE',
  // What the job asks for is not there.
  NOT_FOUND: 'ENOENT ENOTDIR PARENT_GONE',
  // What the job asks for cannot be had: it will not be had by asking again.
  VALIDATION: `
    EACCES EPERM EROFS EISDIR ELOOP ENAMETOOLONG EINVAL ENOTEMPTY EEXIST EXDEV
    ERR_INVALID_ARG_TYPE ERR_INVALID_ARG_VALUE ERR_OUT_OF_RANGE ERR_INVALID_URL ERR_UNKNOWN_ENCODING
    ERR_UNSUPPORTED_PROTOCOL UND_ERR_INVALID_ARG INVALID_STATE`,
  PARSE: 'ERR_ENCODING_INVALID_ENCODED_DATA Z_DATA_ERROR Z_BUF_ERROR',
})

/** `error.name`. */
export const BY_ERROR_NAME = table({
  TIMEOUT: 'TimeoutError AbortError',
  // zod, valibot, arktype, @standard-schema/utils, yup and joi.
  VALIDATION: 'ZodError $ZodError ValiError TraversalError SchemaError ValidationError',
  PARSE: 'SyntaxError',
})

// SQLSTATE by its five characters, then by its class. What is not here comes from the server or the connection.
const BY_SQLSTATE = table({
  TIMEOUT: '57014',
  NOT_FOUND: 'P0002',
  UNKNOWN: 'P0001',
})
const BY_SQLSTATE_CLASS = table({
  // Data, constraints, and statements that are wrong or not allowed: the same again comes to the same.
  VALIDATION: '21 22 23 42 44 0A',
})

/** The code of an error of PostgreSQL. */
export function codeOfSqlState(sqlState: string): FailureCode {
  return BY_SQLSTATE.get(sqlState) ?? BY_SQLSTATE_CLASS.get(sqlState.slice(0, 2)) ?? 'DATABASE'
}

/** The code of an HTTP status of 400 and more. */
export function codeOfHttpStatus(status: number): FailureCode {
  if (status === 429) return 'RATE_LIMITED'
  if (status === 408 || status === 504) return 'TIMEOUT'
  if (status === 404 || status === 410) return 'NOT_FOUND'
  if (status === 425 || status >= 500) return 'NETWORK'
  return 'VALIDATION'
}

const RETRYABLE: ReadonlySet<FailureCode> = new Set([
  'AI_FAILURE',
  'NETWORK',
  'TIMEOUT',
  'DATABASE',
  'RATE_LIMITED',
  'LEASE_LOST',
  'UNKNOWN',
])

/** Whether an error of this code is worth another attempt, where neither the error nor the job's type says. */
export function isRetryableCode(code: FailureCode): boolean {
  return RETRYABLE.has(code)
}
