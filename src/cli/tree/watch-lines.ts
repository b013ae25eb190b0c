import { isConnectionError } from '../../db/connection-errors.ts'
import type { FeedBatch } from '../../engine/feed/batch.ts'
import type { JobEvent } from '../../engine/feed/event.ts'
import { isTerminal, type TerminalState } from '../../engine/states.ts'
import { printable } from './cells.ts'
import type { TreeReading } from './read.ts'
import type { TreeSource } from './source.ts'

/** Where the lines go. */
export interface LineWriter {
  /** The tree as it is, at the beginning and after a gap in the log. */
  tree(reading: TreeReading): Promise<void>
  /** Something that happened; `name` is type and key of the job, where it still is. */
  event(event: JobEvent, name: string): Promise<void>
}

/** How a watched tree ended: the root's last state, or it was deleted. */
export type TreeEnd = TerminalState | 'deleted'

/** Writes a tree, then everything that happens in it, until its root has ended. Undefined when the signal stops it first. */
export async function watchLines(
  source: TreeSource,
  writer: LineWriter,
  signal: AbortSignal,
): Promise<TreeEnd | undefined> {
  while (!signal.aborted) {
    const reading = await source.read()
    if (!reading) return 'deleted'
    await writer.tree(reading)
    if (isTerminal(reading.root.state)) return reading.root.state
    const end = await follow(source, writer, signal, reading)
    if (end !== 'gap') return end
  }
  return undefined
}

/** Writes what happens after a reading; `gap` when some of it is no longer to be had. */
async function follow(
  source: TreeSource,
  writer: LineWriter,
  signal: AbortSignal,
  { snapshot, root }: TreeReading,
): Promise<TreeEnd | 'gap' | undefined> {
  const ended = new AbortController()
  const either = AbortSignal.any([signal, ended.signal])
  const names = new Map<string, string>()
  try {
    for await (const batch of source.changes(either, snapshot)) {
      await rememberNames(source, names, batch)
      for (const event of batch.events) {
        await writer.event(event, names.get(event.jobId) ?? event.type)
        if (event.jobId !== root.id) continue
        if (event.kind === 'deleted') return 'deleted'
        if (event.to !== null && isTerminal(event.to)) return event.to
      }
      if (batch.ended !== null) return 'gap'
    }
    return undefined
  } finally {
    ended.abort()
  }
}

/** Names to keep: enough for what is going on at one time. */
const MOST_NAMES = 20_000

async function rememberNames(source: TreeSource, names: Map<string, string>, { events }: FeedBatch): Promise<void> {
  const unknown = new Set(events.map(({ jobId }) => jobId).filter((id) => !names.has(id)))
  if (unknown.size === 0) return
  if (names.size > MOST_NAMES) names.clear()
  try {
    for (const [id, name] of await source.names([...unknown])) names.set(id, name)
  } catch (error) {
    // Events go on without; the feed waits until the database is back.
    if (!isConnectionError(error)) throw error
  }
}

/** An event in one line: when, which job, what. */
export function lineOfEvent(event: JobEvent, name: string): string {
  const { kind, from, to, phase, reason, detail } = event
  const parts = [event.at.toISOString().slice(11, 23), name, `JB_${event.jobId}`]
  if (kind === 'moved') parts.push(`${from} → ${to}${phase === 'aggregate' ? ' (aggregate)' : ''}`)
  else if (kind === 'created') parts.push(`created ${to}`)
  else if (kind === 'progress') parts.push(`progress ${progressText(detail)}`)
  else parts.push(kind)
  if (reason !== null) parts.push(reason)
  return printable(parts.join(' '))
}

function progressText(detail: JobEvent['detail']): string {
  if (typeof detail !== 'object' || detail === null || Array.isArray(detail)) return ''
  const { current, total, message } = detail
  const figures = total === undefined ? `${current}` : `${current}/${total}`
  return message === undefined ? figures : `${figures} ${message}`
}
