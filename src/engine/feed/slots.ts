/** Lets so many through at a time, the others in the order in which they came. */
export interface Slots {
  /** Waits for a slot; call what it gives to hand it back. */
  acquire(): Promise<() => void>
  /** Returns when all who came before have handed theirs back. */
  idle(): Promise<void>
}

/** Makes `count` slots. */
export function createSlots(count: number): Slots {
  const waiting: (() => void)[] = []
  let free = count

  function release() {
    const next = waiting.shift()
    if (next === undefined) free++
    else next()
  }

  async function acquire() {
    if (free > 0) free--
    else await new Promise<void>((resolve) => waiting.push(resolve))
    return release
  }

  async function idle() {
    const all = await Promise.all(Array.from({ length: count }, acquire))
    for (const one of all) one()
  }

  return { acquire, idle }
}
