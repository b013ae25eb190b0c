/** What one job of the soak does, and the whole tree below it. */
export interface Plan {
  /** Its children, child set by child set: it aggregates after each, and spawns the next. */
  waves: Plan[][]
  /** It fails for good where it would complete. */
  fails?: true
  /** Its own failure fails its parent. */
  failsParent?: true
  /** What is open below it goes on when it ends. */
  keeps?: true
}

/** What a tree must come to, whatever was killed meanwhile. */
export interface Expectation {
  state: 'completed' | 'failed'
  /**
   * Of the whole tree. Null where that depends on who comes first: a job that fails with its children cancels whatever
   * they have become.
   */
  exactly: { jobs: number; wakes: number } | null
}

export function expectationOf(plan: Plan): Expectation {
  let jobs = 1
  let wakes = 0
  let exact = true
  for (const wave of plan.waves) {
    const children = wave.map(expectationOf)
    for (const child of children) {
      jobs += child.exactly?.jobs ?? 0
      wakes += child.exactly?.wakes ?? 0
      exact &&= child.exactly !== null
    }
    const failing = wave.some((child, index) => child.failsParent && children[index]!.state === 'failed')
    if (failing) return { state: 'failed', exactly: exact && plan.keeps ? { jobs, wakes } : null }
    wakes++
  }
  return { state: plan.fails ? 'failed' : 'completed', exactly: exact ? { jobs, wakes } : null }
}

const LEAF: Plan = { waves: [] }
const FAILING: Plan = { waves: [], fails: true }
const leaves = (n: number): Plan[] => Array.from({ length: n }, () => LEAF)

/** Kinds of trees, by name; `n` is a small number that varies. */
const SHAPES: Record<string, (n: number) => Plan> = {
  alone: () => LEAF,
  'no children at all': () => ({ waves: [[]] }),
  flat: (n) => ({ waves: [leaves(2 * n)] }),
  wide: (n) => ({ waves: [leaves(10 + n)] }),
  nested: (n) => ({ waves: [[{ waves: [leaves(n)] }, LEAF, { waves: [leaves(2)] }]] }),
  deep: () => ({ waves: [[{ waves: [[{ waves: [[{ waves: [[LEAF]] }]] }]] }]] }),
  'in waves': (n) => ({ waves: [leaves(n), [], [LEAF, { waves: [leaves(2), leaves(1)] }]] }),
  'failing children': (n) => ({
    waves: [
      [...leaves(n), FAILING],
      [FAILING, LEAF],
    ],
  }),
  'a parent that fails': (n) => ({ waves: [[{ waves: [leaves(n)], fails: true }, LEAF]] }),
  'failed by a child': (n) => ({ waves: [[...leaves(n), { ...FAILING, failsParent: true }], leaves(2)] }),
  'failed by a child two levels below': (n) => ({
    waves: [
      [{ waves: [[...leaves(n), { ...FAILING, failsParent: true }]], failsParent: true }, { waves: [leaves(2)] }],
    ],
  }),
  'a child failed by its child': (n) => ({
    waves: [[{ waves: [[{ ...FAILING, failsParent: true }]] }, ...leaves(n)], leaves(1)],
  }),
  'failed by a child, the others kept': (n) => ({
    waves: [[{ ...FAILING, failsParent: true }, ...leaves(n), { waves: [leaves(2)] }]],
    keeps: true,
  }),
}

/** A tree of a shape by chance. */
export function randomPlan(random: () => number): Plan {
  const shapes = Object.values(SHAPES)
  return shapes[Math.floor(random() * shapes.length)]!(1 + Math.floor(random() * 4))
}
