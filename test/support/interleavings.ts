/** Decides, step by step and run by run, which session goes next. */
export interface Chooser {
  readonly kind: ChooserKind['kind']
  /** One of the names that may go now. */
  choose(names: readonly string[]): string
  /** Turns to the next schedule; false: there is none. */
  next(): boolean
}

/** Every schedule, one after the other, beginning with the sessions one by one; or a sample of them. */
export type ChooserKind =
  | { kind: 'in order' }
  /** `steps`: a schedule that was run, which tells how long each session is. */
  | { kind: 'sample'; seed: number; steps: readonly string[] }

export function createChooser(kind: ChooserKind): Chooser {
  return kind.kind === 'in order' ? depthFirst() : sample(kind.seed, kind.steps)
}

/** How many interleavings sessions have whose steps came in this order once. */
export function interleavingsOf(steps: readonly string[]): number {
  let many = 1
  let done = 0
  for (const count of counts(steps).values()) {
    for (let n = 1; n <= count; n++) many = (many * ++done) / n
  }
  return Math.round(many)
}

/** Goes back to the last choice that has an alternative left, and takes that. */
function depthFirst(): Chooser {
  const path: { names: readonly string[]; taken: number }[] = []
  let depth = 0
  return {
    kind: 'in order',
    choose(names) {
      if (depth === path.length) path.push({ names, taken: 0 })
      const { names: before, taken } = path[depth++]!
      // A lock that was had a moment sooner than last time makes a choice where there was none: any will do then.
      return names.includes(before[taken]!) ? before[taken]! : names[0]!
    },
    next() {
      depth = 0
      while (path.length > 0 && path.at(-1)!.taken + 1 >= path.at(-1)!.names.length) path.pop()
      const last = path.at(-1)
      if (last) last.taken++
      return last !== undefined
    },
  }
}

/**
 * First the sessions one by one, in every order. Then by chance: by turns each session in proportion to what it has left to
 * do, so that all interleavings are about equally likely, and with a preference for whoever went last, so that such come
 * up too as have few changes.
 */
function sample(seed: number, steps: readonly string[]): Chooser {
  const random = generator(seed)
  const total = counts(steps)
  const orders = permutations([...total.keys()]).slice(1)
  let left = new Map(total)
  let run = 0
  let last: string | undefined
  const weightOf = (name: string) => Math.max(1, left.get(name) ?? 0) * (run % 2 === 1 && name === last ? 8 : 1)
  const byChance = (names: readonly string[]) => {
    const weights = names.map(weightOf)
    let index = 0
    let at = random() * weights.reduce((sum, weight) => sum + weight, 0)
    while (index < names.length - 1 && at >= weights[index]!) at -= weights[index++]!
    return names[index]!
  }
  return {
    kind: 'sample',
    choose(names) {
      const order = orders[run]
      last = order?.find((name) => names.includes(name)) ?? byChance(names)
      left.set(last, (left.get(last) ?? 0) - 1)
      return last
    },
    next() {
      // The first schedule was run by whoever made this.
      if (last !== undefined) run++
      last = undefined
      left = new Map(total)
      return true
    },
  }
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]]
  return items.flatMap((item) => permutations(items.filter((other) => other !== item)).map((rest) => [item, ...rest]))
}

function counts(steps: readonly string[]): Map<string, number> {
  const count = new Map<string, number>()
  for (const step of steps) count.set(step, (count.get(step) ?? 0) + 1)
  return count
}

/** Numbers from 0 to 1 that are the same for the same seed (mulberry32). */
export function generator(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}
