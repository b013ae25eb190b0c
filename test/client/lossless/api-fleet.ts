import { type ApiProcess, type ApiProcessOptions, startApiProcess } from '../../support/api-process.ts'

/** Processes that serve the API of one database, as many as were asked for but for the moments after an end. */
export interface ApiFleet {
  /** Where those serve that are there. */
  ports(): number[]
  /** Kills any one with SIGKILL and lets another take its place, which is not waited for. False: none was there. */
  killOne(): boolean
  /** The same in good order: with SIGTERM, and another once it is gone. */
  restartOne(): boolean
  /** Returns when all are there. @throws Error if one did not start or ended by itself */
  complete(): Promise<void>
  stop(): Promise<void>
}

export async function startApiFleet(options: ApiProcessOptions, count: number): Promise<ApiFleet> {
  /** Those that are ending among them: they must refuse newcomers themselves, or serve them to their end. */
  const serving = new Set<ApiProcess>()
  const ending = new Set<ApiProcess>()
  const changing = new Set<Promise<void>>()
  let failure: unknown
  let stopping = false

  async function startOne(): Promise<void> {
    if (stopping) return
    serving.add(await startApiProcess(options))
  }

  function replaceOne(signal: NodeJS.Signals): boolean {
    const victims = [...serving].filter((one) => !ending.has(one))
    const victim = victims[Math.floor(Math.random() * victims.length)]
    if (victim === undefined) return false
    if (!victim.running) failure ??= new Error('An API process ended by itself')
    ending.add(victim)
    const change = victim
      .end(signal)
      .finally(() => {
        serving.delete(victim)
        ending.delete(victim)
      })
      .then(startOne)
      .catch((error: unknown) => {
        failure ??= error
      })
      .finally(() => changing.delete(change))
    changing.add(change)
    return true
  }

  async function complete(): Promise<void> {
    await Promise.all(changing)
    if (failure !== undefined) throw failure
  }

  const fleet: ApiFleet = {
    ports: () => [...serving].map(({ port }) => port),
    killOne: () => replaceOne('SIGKILL'),
    restartOne: () => replaceOne('SIGTERM'),
    complete,
    async stop() {
      stopping = true
      await Promise.all(changing)
      await Promise.all([...serving].map((one) => one.end()))
    },
  }
  try {
    await Promise.all(Array.from({ length: count }, startOne))
    return fleet
  } catch (error) {
    await fleet.stop()
    throw error
  }
}
