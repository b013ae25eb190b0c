/** Jobs whose last event is remembered. */
const MAX_JOBS = 10_000

/**
 * Knows which events have been told: those of a job grow. A cursor repeats nothing, so that this is the second lock on
 * the door; of the jobs that were quiet for longest it knows nothing any more.
 */
export function createSeenEvents(): (event: { id: string; jobId: string }) => boolean {
  const last = new Map<string, bigint>()
  return ({ id, jobId }) => {
    const number = BigInt(id.replace(/^EV_/, ''))
    const known = last.get(jobId)
    if (known !== undefined && known >= number) return true
    // Behind all others.
    last.delete(jobId)
    last.set(jobId, number)
    if (last.size > MAX_JOBS) last.delete(last.keys().next().value!)
    return false
  }
}
