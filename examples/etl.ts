import { createReadStream } from 'node:fs'
import { mkdir, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError } from '../src/index.ts'
import { withRegularFile } from './regular-file.ts'

/** Bad rows that are told one by one; the others are only counted. */
const TOLD = 100

/** A row of the source: one JSON object a line. */
const order = z.object({
  id: z.int(),
  customer: z.string().trim().min(1),
  amount: z.union([
    z.number().min(0),
    z
      .string()
      .regex(/^\d+(\.\d+)?$/)
      .transform(Number),
  ]),
  at: z.union([z.iso.datetime({ offset: true }), z.iso.date()]).transform((text) => new Date(text)),
})
const badRow = z.object({ line: z.number(), reason: z.string() })

/**
 * Extracts orders from a file of JSON lines, transforms them, and loads them into `out`, in chunks that run in parallel.
 * A bad row is left out and told. A chunk of mostly bad rows fails; if that is the lot of more than 10 % of the chunks,
 * so does the whole.
 */
export const etl = declareJob({
  type: 'etl',
  payload: z.object({
    path: z.string().min(1),
    /** Folder for the loaded rows: a file for each chunk. */
    out: z.string().min(1),
    chunkLines: z.int().min(1).default(1000),
  }),
  result: z.object({
    loaded: z.number(),
    cents: z.number(),
    bad: z.number(),
    badRows: z.array(badRow),
    failedChunks: z.array(z.object({ firstLine: z.number(), reason: z.string() })),
  }),
})

/** The lines that begin in the bytes from `from` to `to`, exclusive, of which the first is line `firstLine`. */
export const etlChunk = declareJob({
  type: 'etl-chunk',
  payload: z.object({ path: z.string(), out: z.string(), from: z.int(), to: z.int(), firstLine: z.int() }),
  result: z.object({ loaded: z.number(), cents: z.number(), bad: z.number(), badRows: z.array(badRow) }),
})

export const etlJob = defineJob(etl, {
  failureTolerance: '10%',
  async ingest(ctx) {
    const { path: source, out, chunkLines } = ctx.payload
    await mkdir(out, { recursive: true })
    const chunks = []
    for await (const { from, to, firstLine } of chunksOf(source, chunkLines)) {
      chunks.push(etlChunk.with({ path: source, out, from, to, firstLine }, { key: String(firstLine) }))
    }
    await ctx.spawn(chunks)
  },
  async aggregate(ctx) {
    const total = { loaded: 0, cents: 0, bad: 0, badRows: [] as z.infer<typeof badRow>[] }
    const failedChunks: { firstLine: number; reason: string }[] = []
    for await (const chunk of ctx.children(etlChunk)) {
      if (chunk.state === 'completed') {
        total.loaded += chunk.result.loaded
        total.cents += chunk.result.cents
        total.bad += chunk.result.bad
        total.badRows.push(...chunk.result.badRows.slice(0, TOLD - total.badRows.length))
      } else {
        const reason = chunk.state === 'failed' ? chunk.error.message : chunk.cancelCode
        failedChunks.push({ firstLine: chunk.payload.firstLine, reason })
      }
    }
    return { ...total, failedChunks }
  },
})

export const etlChunkJob = defineJob(etlChunk, {
  async run(ctx) {
    const { path: source, out, from, to, firstLine } = ctx.payload
    const bytes = await withRegularFile(Buffer.from(path.resolve(source)), async (file) => {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(to - from), 0, to - from, from)
      return buffer.subarray(0, bytesRead)
    })
    const rows: string[] = []
    const bad: z.infer<typeof badRow>[] = []
    let cents = 0
    for (const [index, line] of bytes.toString().replace(/\n$/, '').split('\n').entries()) {
      const row = transform(line)
      if ('reason' in row) bad.push({ line: firstLine + index, reason: row.reason })
      else {
        cents += row.cents
        rows.push(`${JSON.stringify(row)}\n`)
      }
    }
    if (bad.length > rows.length) {
      const message = `${bad.length} of ${bad.length + rows.length} rows are bad, line ${bad[0]!.line}: ${bad[0]!.reason}`
      throw new PermanentError(message, { code: 'VALIDATION' })
    }
    // A file appears whole or not at all, and again by a second attempt: the same.
    const file = path.join(out, `part-${firstLine}.jsonl`)
    const unfinished = `${file}.${ctx.attempt}`
    await writeFile(unfinished, rows.join(''))
    await rename(unfinished, file)
    return { loaded: rows.length, cents, bad: bad.length, badRows: bad.slice(0, TOLD) }
  },
})

function transform(line: string): { id: number; customer: string; cents: number; day: string } | { reason: string } {
  try {
    const { id, customer, amount, at } = order.parse(JSON.parse(line))
    return { id, customer, cents: Math.round(amount * 100), day: at.toISOString().slice(0, 10) }
  } catch (error) {
    if (error instanceof z.ZodError) return { reason: z.prettifyError(error).replaceAll(/\s+/g, ' ') }
    return { reason: error instanceof SyntaxError ? 'not JSON' : String(error) }
  }
}

/** Cuts a file after every so many lines. */
async function* chunksOf(source: string, lines: number) {
  let [from, position, line, firstLine] = [0, 0, 1, 1]
  for await (const buffer of createReadStream(source) as AsyncIterable<Buffer>) {
    for (let at = buffer.indexOf(10); at >= 0; at = buffer.indexOf(10, at + 1)) {
      line++
      if (line - firstLine < lines) continue
      yield { from, to: position + at + 1, firstLine }
      from = position + at + 1
      firstLine = line
    }
    position += buffer.length
  }
  if (position > from) yield { from, to: position, firstLine }
}
