import { isConnectionError } from '../../db/connection-errors.ts'
import { isTerminal } from '../../engine/states.ts'
import { fitLine, type Line } from './cells.ts'
import { layoutTree, type Size } from './layout.ts'
import type { Outline } from './outline.ts'
import type { TreeReading } from './read.ts'
import type { TreeSource } from './source.ts'

/** Where a live tree is drawn. */
export interface Screen {
  /** As it is now. */
  size(): Size
  /** Replaces what was drawn before. */
  draw(lines: readonly Line[]): void
  /** Calls back when the size has changed; returns what ends that. */
  onResize(listener: () => void): () => void
}

/** Shortest time between two readings; a slow reading is followed by four times its own length. */
const READ_EVERY_MS = 100
const PATIENCE = 4
/** With no change the clock still goes on, and now and then the tree is read all the same. */
const REDRAW_EVERY_MS = 1000
const REREAD_EVERY_MS = 5000

const GONE: Line = [{ text: 'The root of this tree has been deleted.', style: 'bad' }]
const AWAY: Line = [{ text: 'The database cannot be reached; trying again.', style: 'bad' }]

/**
 * Draws a tree again and again, whenever it changes, until its root has ended, is deleted, or the signal says stop.
 *
 * @returns the last reading; undefined when the root is gone.
 */
export async function watchScreen(
  source: TreeSource,
  screen: Screen,
  signal: AbortSignal,
): Promise<TreeReading | undefined> {
  const over = new AbortController()
  const changed = new Latch()
  const stop = () => over.abort()
  signal.addEventListener('abort', stop, { once: true })
  if (signal.aborted) stop()
  let last: { reading: TreeReading; at: number } | undefined
  let away = false
  const redraw = () => {
    if (!last) return
    const { columns, rows } = screen.size()
    const grown = isTerminal(last.reading.root.state) ? 0 : performance.now() - last.at
    const outline: Outline = { ...last.reading.outline, ageMs: last.reading.outline.ageMs + grown }
    const lines = layoutTree(outline, { columns, rows: away ? rows - 1 : rows })
    screen.draw(away ? [...lines, fitLine(AWAY, columns)] : lines)
  }
  const ignoreResize = screen.onResize(redraw)
  const listening = listen(source, over.signal, () => changed.open())
  try {
    for (;;) {
      const started = performance.now()
      try {
        const reading = await source.read()
        if (!reading) {
          screen.draw([fitLine(GONE, screen.size().columns)])
          return undefined
        }
        last = { reading, at: performance.now() }
        away = false
      } catch (error) {
        if (!isConnectionError(error)) throw error
        away = true
      }
      redraw()
      if (last && (isTerminal(last.reading.root.state) || signal.aborted)) return last.reading
      if (signal.aborted) return undefined
      await pause(Math.max(READ_EVERY_MS, (performance.now() - started) * PATIENCE), over.signal)
      const due = performance.now() + REREAD_EVERY_MS
      while (!over.signal.aborted && performance.now() < due && !(await changed.within(REDRAW_EVERY_MS, over.signal))) {
        if (away) break
        redraw()
      }
    }
  } finally {
    ignoreResize()
    signal.removeEventListener('abort', stop)
    stop()
    await listening
  }
}

/** Says when something has changed. Without a feed, for a while, the tree is still read now and then. */
async function listen(source: TreeSource, signal: AbortSignal, onChange: () => void): Promise<void> {
  while (!signal.aborted) {
    try {
      // The first batch, even an empty one, says that from here on nothing is missed.
      for await (const _ of source.changes(signal)) onChange()
    } catch {
      // The readings tell what is wrong.
    }
    await pause(REDRAW_EVERY_MS, signal)
  }
}

/** Remembers that something happened until it is asked for. */
class Latch {
  #isOpen = false
  #waiting: (() => void) | undefined

  open(): void {
    this.#isOpen = true
    this.#waiting?.()
  }

  /** Whether it was opened, at the latest within `ms`; closes it. */
  async within(ms: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isOpen) {
      await new Promise<void>((resolve) => {
        this.#waiting = resolve
        void pause(ms, signal).then(resolve)
      })
    }
    const wasOpen = this.#isOpen
    this.#isOpen = false
    return wasOpen
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    const timer = setTimeout(done, ms)
    function done() {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    signal.addEventListener('abort', done, { once: true })
  })
}
