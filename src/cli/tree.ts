import type { Command } from 'commander'
import type { Engine } from '../engine/engine.ts'
import { NotFoundError } from '../engine/errors.ts'
import { formatJobId, parseJobId } from '../engine/ids.ts'
import { treeIdOf } from '../engine/reads/tree.ts'
import { CliError } from './cli-error.ts'
import { commandWith, LISTENING_SETTINGS } from './settings-options.ts'
import { onStopSignal } from './stop-signal.ts'
import { engineSource } from './tree/engine-source.ts'
import { eventToJson, jobToJson, writeTreeJson } from './tree/json.ts'
import { layoutTree } from './tree/layout.ts'
import { createPaint, type Paint } from './tree/paint.ts'
import { readTree, type TreeReading } from './tree/read.ts'
import type { TreeSource } from './tree/source.ts'
import { terminalScreen } from './tree/terminal-screen.ts'
import { type LineWriter, lineOfEvent, type TreeEnd, watchLines } from './tree/watch-lines.ts'
import { watchScreen } from './tree/watch-screen.ts'
import { withEngine } from './with-engine.ts'
import { writeOut } from './write-out.ts'

interface Flags extends Record<string, unknown> {
  watch?: boolean
  lines: string
  json?: boolean
}

/** Columns of an output that is no terminal. */
const COLUMNS = 160

/** `coppice tree`. */
export function treeCommand(): Command {
  return commandWith('tree', 'show the tree of a job', LISTENING_SETTINGS)
    .argument('<ID>', 'JB_… of any job of the tree')
    .option('--watch', 'keep it up to date until its root has ended: exit code 0 if it completed, else 1')
    .option('--lines <COUNT>', 'at most so many lines, where it is not kept up to date on a terminal', '1000')
    .option('--json', 'write JSON: the tree, or with --watch one event a line')
    .action(async (id: string, flags: Flags) => {
      const jobId = parseJobId(id)
      const rows = Number(flags.lines)
      if (!Number.isInteger(rows) || rows < 1)
        throw new CliError('--lines must be a whole number from 1', { exitCode: 2 })
      await withEngine(flags, [], async (engine, logger) => {
        const treeId = await treeIdOf(engine.database, jobId)
        if (treeId === null) throw new NotFoundError(jobId)
        if (flags.watch)
          process.exitCode = await watch(await engineSource(engine, treeId, logger), rows, flags.json === true)
        else if (flags.json) await writeTreeJson(engine.database, treeId, writeOut)
        else await show(engine, treeId, rows)
      })
    })
}

async function show(engine: Engine, treeId: string, rows: number): Promise<void> {
  const reading = await readTree(engine.database, treeId)
  if (!reading)
    throw new CliError(`The root of this tree, ${formatJobId(treeId)}, has been deleted; --json shows the rest.`)
  await writeTree(reading, rows, painter())
}

async function watch(source: TreeSource & { close(): Promise<void> }, rows: number, json: boolean): Promise<number> {
  const stopping = new AbortController()
  const stop = onStopSignal()
  let interrupted = false
  void stop.signal.then(() => {
    interrupted = true
    stopping.abort()
  })
  try {
    let end: TreeEnd | undefined
    if (json || !process.stdout.isTTY) {
      end = await watchLines(source, json ? jsonWriter() : lineWriter(rows, painter()), stopping.signal)
    } else {
      const screen = terminalScreen(process.stdout, painter())
      const reading = await watchScreen(source, screen, stopping.signal).finally(screen.done)
      end = reading === undefined ? 'deleted' : (reading.root.state as TreeEnd)
    }
    if (interrupted) return 130
    return end === 'completed' ? 0 : 1
  } finally {
    await source.close()
    stop.release()
  }
}

function painter(): Paint {
  return createPaint(process.stdout.isTTY && process.stdout.hasColors())
}

async function writeTree({ outline }: TreeReading, rows: number, paint: Paint): Promise<void> {
  const columns = process.stdout.isTTY ? process.stdout.columns : COLUMNS
  await writeOut(`${paint(layoutTree(outline, { columns, rows }))}\n`)
}

function lineWriter(rows: number, paint: Paint): LineWriter {
  return {
    tree: (reading) => writeTree(reading, rows, paint),
    event: (event, name) => writeOut(`${lineOfEvent(event, name)}\n`),
  }
}

function jsonWriter(): LineWriter {
  return {
    tree: ({ root, outline }) => writeOut(`${JSON.stringify({ root: jobToJson(root), counts: outline.counts })}\n`),
    event: (event) => writeOut(`${JSON.stringify(eventToJson(event))}\n`),
  }
}
