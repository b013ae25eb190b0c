import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** The process with the writers. */
export interface Writers {
  /** Lets them come to an end. @throws Error if they did not end well */
  finish(): Promise<void>
  kill(): void
}

/** @param program compiled `lossless-writers.ts` */
export async function startWriters(
  program: string,
  connectionString: string,
  count: number,
  roots: readonly string[],
): Promise<Writers> {
  const child = spawn(process.execPath, [program, connectionString, String(count), ...roots], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  // A pipe to one that is killed breaks, and that is all there is to it.
  child.stdin.on('error', () => {})
  const ended = once(child, 'exit')
  const ready = once(child.stdout, 'data')
  await Promise.race([
    ready,
    ended.then(() => {
      throw new Error('The writers ended before they began')
    }),
  ])
  return {
    async finish() {
      child.stdin.end()
      const [code, signal] = await ended
      if (code !== 0) throw new Error(`The writers ended with ${code ?? signal}`)
    },
    kill: () => void child.kill('SIGKILL'),
  }
}
