/** A pause that can be cut short. One at a time. */
export interface Nap {
  sleep(ms: number): Promise<void>
  /** Ends the pause under way, if there is one. */
  interrupt(): void
}

export function createNap(): Nap {
  let finish: (() => void) | undefined
  return {
    sleep(ms) {
      if (ms <= 0) return Promise.resolve()
      return new Promise((resolve) => {
        finish = () => {
          clearTimeout(timer)
          finish = undefined
          resolve()
        }
        const timer = setTimeout(finish, ms)
      })
    },
    interrupt: () => finish?.(),
  }
}
