import { once } from 'node:events'

/** Writes to standard output, and waits while the reader is slow. */
export async function writeOut(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}
