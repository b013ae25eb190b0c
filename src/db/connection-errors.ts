/** SQLSTATE of an error of PostgreSQL, or the `code` of a socket error; undefined for others. */
export function errorCodeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

const SOCKET_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
])

// node-postgres reports these without a code.
const DRIVER_MESSAGES = [
  'Connection terminated',
  'timeout exceeded when trying to connect',
  'Client has encountered a connection error',
  'Client was closed and is not queryable',
]

/**
 * Whether an error says that the server was not reached or went away, so that the same thing may be tried again:
 * socket errors, SQLSTATE class 08, 57P01 (terminated), 57P02 (crash), 57P03 (starting up), 53300 (too many clients),
 * 25P03 (idle in transaction for too long).
 */
export function isConnectionError(error: unknown): boolean {
  const code = errorCodeOf(error)
  if (code !== undefined) {
    return (
      SOCKET_CODES.has(code) || code.startsWith('08') || ['57P01', '57P02', '57P03', '53300', '25P03'].includes(code)
    )
  }
  return error instanceof Error && DRIVER_MESSAGES.some((message) => error.message.startsWith(message))
}

/** Whether a whole transaction is to be run again: deadlock, serialization failure, lock timeout. */
export function isRetryableConflict(error: unknown): boolean {
  const code = errorCodeOf(error)
  return code === '40P01' || code === '40001' || code === '55P03'
}
