import { expect, it } from 'vitest'
import { runSoak } from './soak.ts'
import { expectationOf, type Plan } from './soak-plans.ts'
import { startSoakServer } from './soak-server.ts'

it('loses, doubles and hastens no wake when workers are killed and the server crashes', async () => {
  const server = await startSoakServer()
  try {
    const report = await runSoak({
      connectionString: server.connectionString,
      workers: 2,
      until: { ms: 6000, kills: 6 },
      crash: server.crash,
      crashEvery: [2000, 4000],
    })
    expect(report.violations).toEqual([])
    expect(report.trees).toBeGreaterThan(50)
    expect(report.restarts).toBeGreaterThan(0)
    expect(report.recovered).toBeGreaterThan(0)
    expect(report.wakes.edge).toBeGreaterThan(50)
  } finally {
    await server.remove()
  }
}, 120_000)

it('knows what a plan comes to', () => {
  const leaf: Plan = { waves: [] }
  const bad: Plan = { waves: [], fails: true, failsParent: true }
  expect(expectationOf(leaf)).toEqual({ state: 'completed', exactly: { jobs: 1, wakes: 0 } })
  expect(expectationOf({ waves: [[leaf, leaf], [leaf]] })).toEqual({
    state: 'completed',
    exactly: { jobs: 4, wakes: 2 },
  })
  // Failed in its first wave, it never comes to the second.
  expect(expectationOf({ waves: [[leaf, bad], [leaf]] })).toEqual({ state: 'failed', exactly: null })
  expect(expectationOf({ waves: [[leaf, bad], [leaf]], keeps: true })).toEqual({
    state: 'failed',
    exactly: { jobs: 3, wakes: 0 },
  })
  // A parent bears what its grandchild does to its child.
  expect(expectationOf({ waves: [[{ waves: [[bad]] }, leaf]] })).toEqual({ state: 'completed', exactly: null })
})
