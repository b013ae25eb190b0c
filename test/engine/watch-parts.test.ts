import { expect, test } from 'vitest'
import { PacedRead } from '../../src/engine/watch/paced-read.ts'
import { Stoppable } from '../../src/engine/watch/stoppable.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'

const DONE = { done: true, value: undefined }

/** Counts up, and then waits for its signal; gives a last value if it was asked to stop with one. */
async function* counting(stop: AbortSignal, values: number): AsyncGenerator<number> {
  for (let n = 1; n <= values; n++) yield n
  await new Promise((resolve) => stop.addEventListener('abort', resolve))
  if (stop.reason === 'closing') yield -1
}

test('a stoppable iterator ends at once for who leaves, and gives a last value when it is only stopped', async () => {
  const left = new Stoppable((stop) => counting(stop, 1))
  expect(await left.next()).toEqual({ done: false, value: 1 })
  const parked = left.next()
  expect(await left.return()).toEqual(DONE)
  expect(await parked).toEqual(DONE)
  expect(await left.next()).toEqual(DONE)

  const closed = new Stoppable((stop) => counting(stop, 0))
  const last = closed.next()
  closed.stop('closing')
  expect(await last).toEqual({ done: false, value: -1 })
  expect(await closed.next()).toEqual(DONE)

  const signals = new AbortController()
  const aborted = new Stoppable((stop) => counting(stop, 0), signals.signal)
  const waiting = aborted.next()
  signals.abort()
  expect(await waiting).toEqual(DONE)
  expect(await new Stoppable((stop) => counting(stop, 5), signals.signal).next()).toEqual(DONE)
})

test('an error as the reason is thrown once; what the source throws after the end is none', async () => {
  const stopped = new Stoppable((stop) => counting(stop, 0))
  const parked = stopped.next()
  stopped.stop(new Error('The token has expired.'))
  await expect(parked).rejects.toThrow('expired')
  expect(await stopped.next()).toEqual(DONE)

  const failing = new Stoppable(async function* (stop): AsyncGenerator<number> {
    await new Promise((_resolve, reject) => stop.addEventListener('abort', () => reject(new Error('late'))))
    yield 1
  })
  const pending = failing.next()
  await failing.return()
  expect(await pending).toEqual(DONE)
  const broken = new Stoppable<number>(async function* () {
    yield Promise.reject(new Error('broken'))
  })
  await expect(broken.next()).rejects.toThrow('broken')
  expect(await broken.next()).toEqual(DONE)
})

test('a paced read runs once for all who ask before it begins, one at a time, and rests', async () => {
  const gates = Array.from({ length: 4 }, () => createGate())
  const begun: number[] = []
  let running = 0
  const paced = new PacedRead(async () => {
    const n = begun.push(performance.now())
    expect(++running).toBe(1)
    await gates[n - 1]!.opened
    running--
    return n
  }, 2)
  const first = [paced.fresh(), paced.fresh()]
  await until(() => begun.length === 1)
  // Asked while it runs: what it finds is of before.
  const second = [paced.fresh(), paced.fresh()]
  const recent = paced.recent()
  await new Promise((resolve) => setTimeout(resolve, 50))
  gates[0]!.open()
  expect(await Promise.all([...first, recent])).toEqual([1, 1, 1])
  expect(await paced.recent()).toBe(1)
  const ended = performance.now()
  gates[1]!.open()
  expect(await Promise.all(second)).toEqual([2, 2])
  // Twice the fifty milliseconds that it took.
  expect(begun[1]! - ended).toBeGreaterThan(80)
  expect(begun).toHaveLength(2)
})

test('a paced read that fails fails who asked, and is tried again by the next', async () => {
  let times = 0
  const paced = new PacedRead(async () => {
    if (++times === 1) throw new Error('away')
    return times
  }, 1)
  await expect(Promise.all([paced.fresh(), paced.fresh()])).rejects.toThrow('away')
  expect(await paced.recent()).toBe(2)
})
