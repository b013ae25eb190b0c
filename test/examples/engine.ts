import { pino } from 'pino'
import * as examples from '../../examples/index.ts'
import { createEngine } from '../../src/engine/create-engine.ts'
import type { Engine } from '../../src/engine/engine.ts'
import { createTestDatabase } from '../support/database.ts'

/** An engine that runs the examples on a database of its own; `close` ends both. */
export async function startExamples(): Promise<{ engine: Engine; close: () => Promise<void> }> {
  const database = await createTestDatabase()
  const engine = createEngine({
    connectionString: database.connectionString,
    schema: database.schema,
    jobs: Object.values(examples),
    concurrency: 100,
    logger: pino({ level: 'silent' }),
  })
  const close = async () => {
    await engine.stop({ grace: 0 })
    await database.drop()
  }
  await engine.start().catch(async (error) => {
    await close()
    throw error
  })
  return { engine, close }
}
