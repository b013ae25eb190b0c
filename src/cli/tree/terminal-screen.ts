import type { WriteStream } from 'node:tty'
import { createLogUpdate } from 'log-update'
import type { Paint } from './paint.ts'
import type { Screen } from './watch-screen.ts'

/** A part of the terminal that is drawn over again and again; `done` leaves what is there and shows the cursor. */
export function terminalScreen(stream: WriteStream, paint: Paint): Screen & { done(): void } {
  const update = createLogUpdate(stream)
  return {
    // The last row is the cursor's.
    size: () => ({ columns: stream.columns || 80, rows: Math.max(1, (stream.rows || 24) - 1) }),
    draw: (lines) => update(paint(lines)),
    onResize(listener) {
      const onResize = () => {
        // Lines drawn for the old width have been wrapped by the terminal: nobody knows where they are.
        update.clear()
        listener()
      }
      stream.on('resize', onResize)
      return () => stream.off('resize', onResize)
    },
    done: () => update.done(),
  }
}
