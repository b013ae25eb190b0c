import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { compileProgram } from '../support/compiled.ts'

const PROGRAM = fileURLToPath(new URL('../support/programs/soak-worker.ts', import.meta.url))

/** Worker processes, of which there are always as many. */
export interface Workers {
  /** Kills one with SIGKILL, and starts another in its place, which is not waited for. False: none was there to kill. */
  killOne(): boolean
  /** @throws Error if one ended by itself, which nothing asks it to. */
  check(): void
  stop(): Promise<void>
}

/** Starts them, and waits until they run jobs. */
export async function startWorkers(connectionString: string, count: number): Promise<Workers> {
  const program = await compileProgram(PROGRAM)
  const all = new Set<ChildProcess>()
  const ready = new Set<ChildProcess>()
  let ended: string | undefined
  const start = async () => {
    const child = spawn(process.execPath, [program.file, connectionString], { stdio: ['ignore', 'pipe', 'inherit'] })
    all.add(child)
    child.on('exit', (code, signal) => {
      if (code !== null) ended ??= `A worker ended by itself, with ${code ?? signal}`
      all.delete(child)
      ready.delete(child)
    })
    const gone = once(child, 'exit').then(([code]) => {
      throw new Error(`A worker ended before it was ready, with ${code}`)
    })
    await Promise.race([once(child.stdout, 'data'), gone])
    gone.catch(() => {})
    ready.add(child)
  }
  const workers: Workers = {
    killOne() {
      // Most hit a worker that runs jobs, some one that is starting.
      const among = [...(Math.random() < 0.85 ? ready : all)]
      const victim = among[Math.floor(Math.random() * among.length)]
      if (!victim) return false
      all.delete(victim)
      ready.delete(victim)
      victim.kill('SIGKILL')
      start().catch(() => {})
      return true
    },
    check() {
      if (ended !== undefined) throw new Error(ended)
    },
    async stop() {
      const living = [...all]
      await Promise.all(
        living.map((child) => {
          const gone = once(child, 'exit')
          child.kill('SIGKILL')
          return gone
        }),
      )
      await program.remove()
    },
  }
  try {
    await Promise.all(Array.from({ length: count }, start))
  } catch (error) {
    await workers.stop()
    throw error
  }
  return workers
}
