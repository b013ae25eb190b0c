import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { parentWakes } from '../../src/engine/maintenance/handlers/parent-wakes.ts'
import { createMaintenanceLoop } from '../../src/engine/maintenance/loop.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { captureLog } from '../support/captured-log.ts'
import { withoutEdge } from '../support/reconciler.ts'
import { until } from '../support/until.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
afterAll(() => v.close())

function loopOn(db: Database) {
  const { logger } = captureLog()
  return createMaintenanceLoop({ db, handlers: [parentWakes(1000)], logger, metrics: createMetrics() })
}

it('of a process killed in the middle of a tick, another goes on with it within about two seconds', async () => {
  const never = () => new Promise<never>(() => {})
  let killed = false
  let ticking = false
  // From its tick on, nothing that the first process asks is answered; killed, it asks nothing any more.
  const mortal: Database = {
    ...v.db,
    query: (statement, parameters) => {
      if (statement.name === 'reconcile.first-look') ticking = true
      if (killed || statement.name === 'reconcile.first-look') return never()
      return v.db.query(statement, parameters)
    },
  }
  const first = loopOn(mortal)
  first.start()
  await until(() => ticking)
  const lossy = withoutEdge(v)
  let asked = 0
  const second = loopOn({
    ...v.db,
    query: (statement, parameters) => {
      if (statement.name === 'maintenance.take-turn') asked += 1
      return v.db.query(statement, parameters)
    },
  })
  try {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
    await lossy.complete(await v.claim())
    second.start()
    // It lives, and keeps its turn.
    await until(() => asked > 2)
    expect((await v.row(id!)).state).toBe('waiting')
    killed = true
    const at = performance.now()
    await until(async () => (await v.row(id!)).state === 'queued', { timeout: 10_000 })
    expect(performance.now() - at).toBeLessThan(2700)
  } finally {
    await Promise.all([first.stop({ deadlineMs: 0 }), second.stop()])
    await lossy.close()
  }
})
