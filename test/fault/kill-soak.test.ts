import { expect, it } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { runKillSoak } from './kill-soak.ts'

it('loses, doubles and halves nothing when workers are killed at random moments', async () => {
  const test = await createTestDatabase()
  try {
    const report = await runKillSoak({ connectionString: test.connectionString, kills: 12, workers: 2 })
    expect(report.violations).toEqual([])
    expect(report.trees).toBeGreaterThan(10)
  } finally {
    await test.drop()
  }
}, 180_000)
