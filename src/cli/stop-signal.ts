/** npm passes on a Ctrl-C that the terminal has sent to its child as well: two signals for one key. In milliseconds. */
const ECHO_MS = 300

/**
 * Waits for SIGINT or SIGTERM. A second signal ends the process at once, with exit code 130.
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
  return { signal: promise, release: () => process.off('SIGINT', listener).off('SIGTERM', listener) }
}

function withResolvers<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}
