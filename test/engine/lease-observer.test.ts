import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createObserver, type Sighting, stillnessLimitMs } from '../../src/engine/lease/observer.ts'

/** A worker of the simulation: its beats as times of commit, in ms, ascending. */
interface Subject {
  id: string
  intervalMs: number
  beats: number[]
}

/** Counts the beats that had committed at `time`, as the row would show them. */
function rowAt(subject: Subject, time: number): Sighting {
  const beat = subject.beats.filter((at) => at <= time).length
  return { id: subject.id, beat: String(beat), intervalMs: subject.intervalMs }
}

/** How one look goes: time until it is sent, until the database reads, and until the answer comes; or it fails. */
interface Step {
  pause: number
  toDatabase: number
  toAnswer: number
  fails: boolean
}

const anyStep: fc.Arbitrary<Step> = fc.record({
  // Beats on time, early looks, lateness, and pauses of a frozen process or suspended host.
  pause: fc.oneof(
    { weight: 8, arbitrary: fc.integer({ min: 1, max: 1500 }) },
    { weight: 1, arbitrary: fc.integer({ min: 1500, max: 60_000 }) },
  ),
  toDatabase: fc.oneof(
    { weight: 8, arbitrary: fc.integer({ min: 0, max: 50 }) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 20_000 }) },
  ),
  toAnswer: fc.oneof(
    { weight: 8, arbitrary: fc.integer({ min: 0, max: 50 }) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 20_000 }) },
  ),
  fails: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
})

describe('observer', () => {
  it('never suspects a worker that beats within two of its intervals, whatever happens to the observer', () => {
    const subject = fc
      .record({
        intervalMs: fc.integer({ min: 50, max: 5000 }),
        gaps: fc.array(fc.double({ min: 0.05, max: 2 }), { minLength: 300, maxLength: 300 }),
      })
      .map(({ intervalMs, gaps }) => {
        let time = 0
        const beats = gaps.map((gap) => {
          time += gap * intervalMs
          return time
        })
        return { intervalMs, beats }
      })
    fc.assert(
      fc.property(
        fc.array(subject, { minLength: 1, maxLength: 4 }),
        fc.array(anyStep, { minLength: 5, maxLength: 120 }),
        fc.integer({ min: 50, max: 5000 }),
        (parts, steps, ownIntervalMs) => {
          const subjects = parts.map((part, index) => ({ ...part, id: `worker-${index}` }))
          const observer = createObserver(ownIntervalMs)
          let now = 0
          for (const step of steps) {
            const sentAt = now + step.pause
            const readAt = sentAt + step.toDatabase
            now = readAt + step.toAnswer
            if (step.fails) {
              observer.reset()
              continue
            }
            // Beyond its last beat a simulated worker would truly have stopped.
            const living = subjects.filter((one) => readAt <= one.beats.at(-1)!)
            const verdict = observer.look({ sentAt, receivedAt: now, workers: living.map((one) => rowAt(one, readAt)) })
            expect(verdict.suspects).toEqual([])
          }
        },
      ),
      { numRuns: 500 },
    )
  })

  it('always suspects a stopped worker within about three of its intervals, looking when it says', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 50, max: 5000 }),
        fc.integer({ min: 50, max: 5000 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 400, maxLength: 400 }),
        (intervalMs, ownIntervalMs, phase, latencies) => {
          const stopsAt = 10 * intervalMs
          const beats = Array.from({ length: 10 }, (_, index) => (index + 1) * intervalMs)
          const subject = { id: 'stopped', intervalMs, beats }
          const observer = createObserver(ownIntervalMs)
          let sentAt = stopsAt - phase * Math.min(ownIntervalMs, stopsAt)
          for (const latency of latencies) {
            const receivedAt = sentAt + latency
            const verdict = observer.look({ sentAt, receivedAt, workers: [rowAt(subject, sentAt)] })
            if (verdict.suspects.length > 0) {
              expect(verdict.suspects).toEqual([{ id: 'stopped', beat: '10' }])
              // The look that first shows the last beat, at most one own interval late; then its limit; and if its
              // interval is much shorter than ours, our next look.
              expect(receivedAt - stopsAt).toBeLessThanOrEqual(
                Math.max(ownIntervalMs + stillnessLimitMs(intervalMs), 2 * ownIntervalMs) + 3 * 20,
              )
              return
            }
            sentAt = Math.max(
              receivedAt,
              Math.min(sentAt + ownIntervalMs, verdict.nextDueAt ?? Number.POSITIVE_INFINITY),
            )
          }
          expect.fail('it was never suspected')
        },
      ),
      { numRuns: 500 },
    )
  })

  const still = [{ id: 'w', beat: '7', intervalMs: 1000 }]

  it('suspects after two intervals and slack, not at them', () => {
    const observer = createObserver(1000)
    observer.look({ sentAt: 0, receivedAt: 5, workers: still })
    expect(observer.look({ sentAt: 1000, receivedAt: 1005, workers: still })).toEqual({ suspects: [], nextDueAt: 2105 })
    expect(observer.look({ sentAt: 2104, receivedAt: 2110, workers: still }).suspects).toEqual([])
    expect(observer.look({ sentAt: 2105, receivedAt: 2110, workers: still }).suspects).toEqual([{ id: 'w', beat: '7' }])
  })

  it('counts a beat that went backwards as a beat', () => {
    const observer = createObserver(1000)
    for (const [time, beat] of [
      [0, '9'],
      [1000, '9'],
      [2000, '3'],
      [3000, '3'],
      [3900, '3'],
    ] as const) {
      const workers = [{ id: 'w', beat, intervalMs: 1000 }]
      expect(observer.look({ sentAt: time, receivedAt: time, workers }).suspects).toEqual([])
    }
  })

  it('starts over after an own failure: an outage stops everybody', () => {
    const observer = createObserver(1000)
    observer.look({ sentAt: 0, receivedAt: 5, workers: still })
    observer.look({ sentAt: 1000, receivedAt: 1005, workers: still })
    observer.reset()
    expect(observer.look({ sentAt: 2500, receivedAt: 2505, workers: still })).toEqual({ suspects: [], nextDueAt: null })
    expect(observer.look({ sentAt: 3500, receivedAt: 3505, workers: still }).suspects).toEqual([])
    expect(observer.look({ sentAt: 4700, receivedAt: 4705, workers: still }).suspects).toHaveLength(1)
  })

  it('starts over after a pause of its own: what froze it may have frozen the others', () => {
    const observer = createObserver(1000)
    observer.look({ sentAt: 0, receivedAt: 5, workers: still })
    observer.look({ sentAt: 1000, receivedAt: 1005, workers: still })
    expect(observer.look({ sentAt: 60_000, receivedAt: 60_005, workers: still })).toEqual({
      suspects: [],
      nextDueAt: null,
    })
    // Frozen between the question and the answer: the answer is old news.
    observer.look({ sentAt: 61_000, receivedAt: 61_005, workers: still })
    expect(observer.look({ sentAt: 62_000, receivedAt: 99_000, workers: still }).suspects).toEqual([])
  })

  it('forgets a worker that is gone, and begins anew when its row comes back', () => {
    const observer = createObserver(1000)
    observer.look({ sentAt: 0, receivedAt: 5, workers: still })
    observer.look({ sentAt: 1000, receivedAt: 1005, workers: [] })
    expect(observer.look({ sentAt: 2200, receivedAt: 2205, workers: still }).suspects).toEqual([])
  })
})
