/** A promise that a test opens by hand: handlers wait at it, so that the test decides when they go on. */
export interface Gate<T = void> {
  readonly opened: Promise<T>
  open(value: T): void
}

export function createGate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {}
  const opened = new Promise<T>((resolve) => {
    open = resolve
  })
  return { opened, open }
}
