/**
 * Milliseconds of the host's monotonic clock. The same for all threads of a process (unlike `performance.now()`, which
 * starts anew in each), and moved by nobody who sets the time.
 */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
