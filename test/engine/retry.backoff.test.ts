import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { PermanentError, RetryableError, SnoozeError } from '../../src/engine/failure/handler-errors.ts'
import { backoffDelay, exhaustedLine, failedAttempt, retryLine, retryOrFail } from '../../src/engine/failure/retry.ts'

const job = { type: 'digest-folder', phase: 'ingest', retryCount: 0, maxRetries: 2 } as const
const id = '018f3c7e-0000-7000-8000-000000000001'

describe('backoff', () => {
  test('is exponential with full jitter: from 1 s to 1 h', () => {
    const longest = [0, 1, 2, 11, 12, 1000].map((retries) => backoffDelay(retries, {}, () => 1))
    expect(longest).toEqual([1000, 2000, 4000, 2_048_000, 3_600_000, 3_600_000])
    expect(backoffDelay(5, {}, () => 0)).toBe(0)
  })

  test('is settable', () => {
    const policy = { initial: '5s', factor: 3, cap: '1m' }
    expect([0, 1, 2, 3].map((retries) => backoffDelay(retries, policy, () => 1))).toEqual([
      5000, 15_000, 45_000, 60_000,
    ])
  })

  test('is uniform over its window', () => {
    const draws = Array.from({ length: 4000 }, () => backoffDelay(0))
    const mean = draws.reduce((sum, delay) => sum + delay, 0) / draws.length
    expect(mean).toBeGreaterThan(450)
    expect(mean).toBeLessThan(550)
    expect(Math.min(...draws)).toBeLessThan(50)
    expect(Math.max(...draws)).toBeGreaterThan(950)
  })

  test('never leaves its window', () => {
    fc.assert(
      fc.property(fc.nat(2000), fc.double({ min: 0, max: 1, noNaN: true }), (retries, draw) => {
        const delay = backoffDelay(retries, {}, () => draw)
        return Number.isInteger(delay) && delay >= 0 && delay <= Math.min(3_600_000, 1000 * 2 ** retries)
      }),
    )
  })
})

describe('an attempt that threw', () => {
  test('is tried again while retries are left, then fails', () => {
    const error = new Error('no')
    const first = failedAttempt(job, error)
    expect(first).toMatchObject({
      outcome: { kind: 'retry', error: { message: 'no', code: 'UNKNOWN' } },
      operation: 'digest-folder ingest',
      exhausted: false,
    })
    const last = failedAttempt({ ...job, retryCount: 2 }, error)
    expect(last).toMatchObject({ outcome: { kind: 'failed', error: { code: 'UNKNOWN' } }, exhausted: true })
    expect(failedAttempt({ ...job, maxRetries: 0 }, error).outcome.kind).toBe('failed')
  })

  test('the delay of the error comes before the backoff', () => {
    const { outcome } = failedAttempt(job, new RetryableError('no', { delay: '90s' }), { backoff: { initial: 1 } })
    expect(outcome).toMatchObject({ kind: 'retry', delayMs: 90_000 })
  })

  test('a permanent error fails at once, and that is no exhaustion', () => {
    expect(failedAttempt(job, new PermanentError('no'))).toMatchObject({
      outcome: { kind: 'failed' },
      exhausted: false,
    })
  })

  test('a snooze spends no retry, however many were', () => {
    const { outcome } = failedAttempt({ ...job, retryCount: 2 }, new SnoozeError('5m'))
    expect(outcome).toEqual({ kind: 'requeue', delayMs: 300_000, reason: 'snoozed' })
  })

  test('the operation is what the error names, else type and phase', () => {
    expect(failedAttempt(job, new RetryableError('no', { operation: 'upload' })).operation).toBe('upload')
    expect(failedAttempt({ ...job, phase: 'aggregate' }, new Error('no')).operation).toBe('digest-folder aggregate')
  })

  test('a lost lease costs a retry', () => {
    const error = { code: 'LEASE_LOST', message: 'gone' } as const
    expect(retryOrFail(job, error).outcome).toMatchObject({ kind: 'retry', error })
    expect(retryOrFail({ ...job, retryCount: 2 }, error).outcome).toEqual({ kind: 'failed', error })
  })
})

test('log lines are word for word', () => {
  expect(retryLine(1, 2, 'digest-folder ingest', id)).toBe(`꩜ Retry 1/2: digest-folder ingest | job:JB_${id}`)
  expect(exhaustedLine(2, 'upload', id)).toBe(`꩜ Max retries exceeded (2): upload | job:JB_${id}`)
})
