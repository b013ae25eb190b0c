import type { Viewer } from '../../resolvers/viewer.ts'

/** Who a request or a socket is of. */
export interface Session {
  readonly viewer: Viewer
  /** When what they showed is over, in milliseconds of this machine's clock; absent for keys, which do not end. */
  readonly expiresAt?: number
}

/** Longest delay that a timer takes: 24 days. */
const MAX_DELAY_MS = 2_147_483_647

/** Calls back when a session is over; never, if it does not end. Returns how to call that off. */
export function atExpiry({ expiresAt }: Session, callback: () => void): () => void {
  if (expiresAt === undefined) return () => {}
  let timer: NodeJS.Timeout
  const wait = () => {
    const left = expiresAt - Date.now()
    timer = left > 0 ? setTimeout(wait, Math.min(left, MAX_DELAY_MS)) : setTimeout(callback, 0)
    timer.unref()
  }
  wait()
  return () => clearTimeout(timer)
}
