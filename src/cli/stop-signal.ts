/** npm passes on a Ctrl-C that the terminal has sent to its child as well: two signals for one key. In milliseconds. */
const ECHO_MS = 300

/** How often to look whether npm is still there. In milliseconds. */
const PARENT_MS = 500

/**
 * Waits for SIGINT or SIGTERM, or the end of the npm that has started this. A second signal ends the process at once,
 * with exit code 130.
 *
 * @returns the signal; and `release`, after which signals act as usual.
 */
export function onStopSignal(): { signal: Promise<NodeJS.Signals>; release: () => void } {
  let first: number | undefined
  const { promise, resolve } = withResolvers<NodeJS.Signals>()
  const listener = (signal: NodeJS.Signals) => {
    const now = performance.now()
    first ??= now
    if (first === now) resolve(signal)
    else if (now - first > ECHO_MS) process.exit(130)
  }
  process.on('SIGINT', listener).on('SIGTERM', listener)
  const watch = watchParent(() => resolve('SIGTERM'))
  const release = () => {
    clearInterval(watch)
    process.off('SIGINT', listener).off('SIGTERM', listener)
  }
  return { signal: promise, release }
}

/**
 * An `npm start` that is killed cannot pass that on: the program would go on, with nobody knowing. So the end of npm
 * counts as the signal. Other scripts may well leave a program behind on purpose.
 */
function watchParent(onGone: () => void): NodeJS.Timeout | undefined {
  if (process.env.npm_lifecycle_event !== 'start') return undefined
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid !== parent) onGone()
  }, PARENT_MS)
  return timer.unref()
}

function withResolvers<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}
