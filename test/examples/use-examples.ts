import { afterAll, beforeAll, expect } from 'vitest'
import * as examples from '../../examples/index.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { findViolations } from '../support/invariants.ts'

/** An engine that runs the examples, on a database of the test file's own; in the end every invariant must hold. */
export function useExamples(): Pick<TestEngine, 'engine' | 'test'> {
  let running: TestEngine
  beforeAll(async () => {
    running = await createTestEngine({ jobs: Object.values(examples), concurrency: 100 })
  })
  afterAll(async () => {
    const { test, close } = running
    // Without statistics the checks of some ten thousand jobs take minutes.
    await test.pool.query(`analyze ${test.schema}.job, ${test.schema}.job_event`)
    const violations = await findViolations(test.pool, { schema: test.schema })
    await close()
    expect(violations).toEqual([])
  })
  return {
    get engine() {
      return running.engine
    },
    get test() {
      return running.test
    },
  }
}
