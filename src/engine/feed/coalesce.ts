/** Many calls made few. */
export interface Coalesced {
  /** Runs the action at once if it has not run lately, else once more when the interval is over. */
  call(): void
  /** Forgets a run that is due, and says whether there was one. */
  cancel(): boolean
}

/** Runs an action at most once an interval: at the leading edge of a burst of calls, and after its last one. */
export function coalesce(action: () => void, intervalMs: number): Coalesced {
  let timer: NodeJS.Timeout | undefined
  let due = false

  function run() {
    due = false
    timer = setTimeout(() => {
      timer = undefined
      if (due) run()
    }, intervalMs)
    timer.unref()
    action()
  }

  return {
    call() {
      if (timer === undefined) run()
      else due = true
    },
    cancel() {
      const was = due
      clearTimeout(timer)
      timer = undefined
      due = false
      return was
    },
  }
}
