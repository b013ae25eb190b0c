import type { Session } from './auth/session.ts'

/** What the transport knows of an operation's caller, and hands on to whoever executes it. */
export interface Caller {
  /** Set once the caller is known. */
  session?: Session
  /** Finds out who calls; absent where that is known already. */
  readonly authenticate?: () => Promise<Session>
  /** Aborted, with the error to end with, when the session is over; absent where the connection is cut then. */
  readonly expired?: AbortSignal
}
