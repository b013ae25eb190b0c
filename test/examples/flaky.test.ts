import { describe, expect, test } from 'vitest'
import { flaky } from '../../examples/flaky.ts'
import { useExamples } from './use-examples.ts'

describe('flaky and noop', () => {
  const examples = useExamples()

  async function movesOf(id: string): Promise<string[]> {
    const { rows } = await examples.engine.database.pool.query<{ move: string }>(
      `select "from" || ' ' || "to" || ' ' || attempt || coalesce(' ' || reason, '') as move
       from ${examples.engine.database.tables.jobEvent} where job_id = $1 and kind = 'moved' order by version`,
      [id],
    )
    return rows.map(({ move }) => move)
  }

  test('flaky fails as often as it is told and then completes; each retry is in the log with its error', async () => {
    const handle = await examples.engine.enqueue(flaky.with({ failures: 2, delay: '10ms' }))
    expect(await examples.engine.waitFor(handle)).toMatchObject({ state: 'completed', result: { attempts: 3 } })
    expect(await movesOf(handle.id)).toEqual([
      'queued running 1',
      'running queued 1 Attempt 1 fails, as do the first 2',
      'queued running 2',
      'running queued 2 Attempt 2 fails, as do the first 2',
      'queued running 3',
      'running completed 3',
    ])
  })

  test('flaky fails for good when it is to fail more often than it may be tried', async () => {
    const handle = await examples.engine.enqueue(flaky.with({ failures: 5, delay: '1ms' }, { maxRetries: 1 }))
    expect(await examples.engine.waitFor(handle)).toMatchObject({
      state: 'failed',
      error: 'Attempt 2 fails, as do the first 5',
      errorCode: 'UNKNOWN',
    })
  })

  test('noop takes anything and results in null', async () => {
    const handles = await examples.engine.enqueueMany([{ type: 'noop' }, { type: 'noop', payload: ['a', { b: 1 }] }])
    for (const handle of handles) {
      expect(await examples.engine.waitFor(handle)).toEqual({ id: handle.id, state: 'completed', result: null })
    }
  })
})
