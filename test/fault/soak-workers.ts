import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { compileProgram } from '../support/compiled.ts'

const PROGRAM = fileURLToPath(new URL('../support/programs/soak-worker.ts', import.meta.url))

/** Processes that have loaded their code and wait to take the place of a killed one: loading takes most of a start. */
const SPARES = 2

/** Worker processes, as many as were asked for, but for the moment after a kill. */
export interface Workers {
  /** Kills one with SIGKILL, and lets another take its place, which is not waited for. False: none was there to kill. */
  killOne(): boolean
  /** @throws Error if one ended by itself, which nothing asks it to. */
  check(): void
  stop(): Promise<void>
}

/** Starts them. */
export async function startWorkers(connectionString: string, count: number): Promise<Workers> {
  const program = await compileProgram(PROGRAM)
  const all = new Set<ChildProcess>()
  const spare = new Set<ChildProcess>()
  /** Those that start their engine or run jobs, and those of them that do run jobs. */
  const working = new Set<ChildProcess>()
  const ready = new Set<ChildProcess>()
  let ended: string | undefined
  let stopping = false

  const load = () => {
    const child = spawn(process.execPath, [program.file, connectionString], { stdio: ['pipe', 'pipe', 'inherit'] })
    all.add(child)
    // A pipe to one that is killed breaks, and that is all there is to it.
    child.stdin.on('error', () => {})
    child.on('exit', (code) => {
      for (const set of [all, spare, working, ready]) set.delete(child)
      if (code !== null) ended ??= `A worker ended by itself, with ${code}`
      fillUp()
    })
    child.stdout.on('data', (said) => {
      if (!all.has(child)) return
      if (String(said).startsWith('ready')) ready.add(child)
      else spare.add(child)
      fillUp()
    })
  }
  const fillUp = () => {
    if (stopping) return
    for (const child of spare) {
      if (working.size === count) break
      spare.delete(child)
      working.add(child)
      child.stdin!.write('go\n')
    }
    while (all.size < count + SPARES) load()
  }

  const workers: Workers = {
    killOne() {
      // Any, the last one that runs jobs and those that are starting among them; but mostly one of several that run jobs,
      // for on a slow machine, where a start takes longer than a kill, nothing would ever be done.
      const among = Math.random() < 0.15 ? [...working] : ready.size > 1 ? [...ready] : []
      const victim = among[Math.floor(Math.random() * among.length)]
      if (!victim) return false
      for (const set of [all, working, ready]) set.delete(victim)
      victim.kill('SIGKILL')
      fillUp()
      return true
    },
    check() {
      if (ended !== undefined) throw new Error(ended)
    },
    async stop() {
      stopping = true
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
  fillUp()
  return workers
}
