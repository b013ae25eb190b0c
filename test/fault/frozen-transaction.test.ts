import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { recoverLostJobs } from '../../src/engine/lease/recovery.ts'
import { captureLog } from '../support/captured-log.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'
import { addWorker, createVerbs } from '../support/verbs.ts'

const PROGRAM = fileURLToPath(new URL('../support/programs/frozen-settle.ts', import.meta.url))

it('frees the locks of a worker frozen in the middle of a settle, and recovery goes on (case 56)', async () => {
  const v = await createVerbs()
  try {
    const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, { type: 'b' }] })
    const frozenId = await addWorker(v.test)
    const [held] = await claimJobs(v.db, { workerId: frozenId, types: ['a'], queues: null, limit: 1 })
    const [sibling] = await v.claim()
    const child = spawn(
      process.execPath,
      ['--import', import.meta.resolve('tsx'), PROGRAM, v.test.connectionString, parent!, held!.id, parent!],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    )
    const exited = once(child, 'exit')
    let output = ''
    child.stdout.on('data', (chunk) => {
      output += chunk
    })
    await until(() => output.includes('locked'), { timeout: 30_000 })
    child.kill('SIGSTOP')
    await v.test.pool.query('update coppice.worker set dead_at = now() where id = $1', [frozenId])

    // Its sibling's end needs the parent's row, its own recovery needs both.
    const began = performance.now()
    const [settled, recovered] = await Promise.all([
      v.complete(sibling!),
      recoverLostJobs(v.db, { actor: 'reconciler', logger: captureLog().logger }),
    ])
    const took = performance.now() - began
    expect(settled.settled).toEqual([sibling!.id])
    expect(recovered).toEqual({ retried: 1, failed: 0 })
    // Not before the server ended the idle transaction, so the locks did stand in the way; and within seconds of that.
    expect(took).toBeGreaterThan(5000)
    expect(took).toBeLessThan(15_000)

    // Thawed, it finds its transaction gone: nothing of it was written.
    child.kill('SIGCONT')
    child.stdin.write('go on\n')
    await exited
    expect(output).toMatch(/^locked\nrefused /)
    expect((await v.row(held!.id)).result).toBeNull()

    await v.test.pool.query('update coppice.job set run_at = now() where id = $1', [held!.id])
    await v.complete(await v.hold(held!.id))
    expect(await v.row(parent!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    expect(await findViolations(v.test.pool)).toEqual([])
  } finally {
    await v.close()
  }
})
