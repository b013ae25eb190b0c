/** Serves many in turn without keeping the event loop from anything else. */
export interface Turns<T> {
  /** It is to be served; once, however often it is added before its turn. */
  add(item: T): void
  delete(item: T): void
}

/** Calls `serve` for each item added, in order, for at most `sliceMs` milliseconds in one go. */
export function createTurns<T>(serve: (item: T) => void, sliceMs = 5): Turns<T> {
  const ready = new Set<T>()
  let scheduled = false

  function run() {
    scheduled = false
    const end = performance.now() + sliceMs
    // What is added meanwhile has its turn after the event loop has been round.
    for (const item of [...ready]) {
      if (!ready.delete(item)) continue
      serve(item)
      if (performance.now() > end) break
    }
    if (ready.size > 0) schedule()
  }

  function schedule() {
    if (scheduled) return
    scheduled = true
    setImmediate(run)
  }

  return {
    add(item) {
      ready.add(item)
      schedule()
    },
    delete(item) {
      ready.delete(item)
    },
  }
}
