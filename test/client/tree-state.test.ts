import { expect, test } from 'vitest'
import { createTreeState, type StateCounts, type TreeUpdate } from '../../src/client/index.ts'

interface Leaf {
  id: string
  version: number
  open?: number
}

const counts = { total: 1 } as StateCounts
const update = (given: Partial<TreeUpdate<Leaf>>): TreeUpdate<Leaf> => ({
  reset: false,
  jobs: [],
  removed: [],
  counts,
  cursor: 'c',
  caughtUp: true,
  ...given,
})

test('applies snapshots and changes; older copies change nothing, equal ones may have newer counters', () => {
  const tree = createTreeState<Leaf>()
  expect([tree.jobs.size, tree.counts, tree.cursor, tree.caughtUp]).toEqual([0, undefined, undefined, false])
  tree.apply(update({ reset: true, jobs: [{ id: 'a', version: 1 }], caughtUp: false, cursor: '1' }))
  expect([tree.jobs.size, tree.counts, tree.cursor, tree.caughtUp]).toEqual([1, counts, '1', false])
  tree.apply(update({ jobs: [{ id: 'b', version: 3, open: 2 }] }))
  tree.apply(
    update({
      jobs: [
        { id: 'b', version: 2, open: 9 },
        { id: 'a', version: 1, open: 1 },
      ],
      removed: ['x'],
    }),
  )
  expect(Object.fromEntries(tree.jobs)).toEqual({
    a: { id: 'a', version: 1, open: 1 },
    b: { id: 'b', version: 3, open: 2 },
  })
  tree.apply(update({ removed: ['a'] }))
  expect([...tree.jobs.keys()]).toEqual(['b'])
  tree.apply(update({ reset: true, jobs: [{ id: 'b', version: 1 }] }))
  expect([...tree.jobs.values()]).toEqual([{ id: 'b', version: 1 }])
  expect(tree.caughtUp).toBe(true)
})
