import { type FileHandle, open } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError } from '../src/index.ts'
import { withRegularFile } from './regular-file.ts'

/**
 * Turns a colour picture (PPM, `P6`, one byte a channel) into a grey one (PGM, `P5`), block by block. Each block is on
 * disk before it is noted in the checkpoint: whatever crashes, the next attempt goes on after the last noted one.
 */
export const media = declareJob({
  type: 'media',
  payload: z.object({
    path: z.string().min(1),
    out: z.string().min(1),
    /** Rows of a block. */
    blockRows: z.int().min(1).default(64),
  }),
  result: z.object({
    width: z.number(),
    height: z.number(),
    /** From 0 to 255. */
    meanGrey: z.number(),
    /** The row at which the last attempt began. */
    resumedAt: z.number(),
  }),
  checkpoint: z.object({ row: z.number(), sum: z.number() }),
})

export const mediaJob = defineJob(media, {
  run(ctx) {
    const { out, blockRows } = ctx.payload
    return withRegularFile(Buffer.from(path.resolve(ctx.payload.path)), async (source, size) => {
      const { width, height, offset } = await headerOf(source)
      if (size < offset + width * height * 3) throw new PermanentError('The picture is cut off', { code: 'VALIDATION' })
      const header = Buffer.from(`P5\n${width} ${height}\n255\n`)
      const start = ctx.saved ?? { row: 0, sum: 0 }
      let { row, sum } = start
      const target = await open(out, row === 0 ? 'w' : 'r+')
      try {
        await target.write(header, 0, header.length, 0)
        while (row < height) {
          ctx.signal.throwIfAborted()
          const rows = Math.min(blockRows, height - row)
          const colours = Buffer.alloc(rows * width * 3)
          await source.read(colours, 0, colours.length, offset + row * width * 3)
          const greys = Buffer.alloc(rows * width)
          for (let at = 0; at < greys.length; at++) {
            greys[at] = greyOf(colours[at * 3]!, colours[at * 3 + 1]!, colours[at * 3 + 2]!)
            sum += greys[at]!
          }
          await target.write(greys, 0, greys.length, header.length + row * width)
          await target.datasync()
          row += rows
          await ctx.save({ row, sum })
          ctx.progress(row, height, 'rows')
        }
      } finally {
        await target.close()
      }
      return { width, height, meanGrey: sum / (width * height), resumedAt: start.row }
    })
  },
})

/** The luma of ITU-R BT.601, in whole numbers. */
function greyOf(red: number, green: number, blue: number): number {
  return Math.floor((red * 299 + green * 587 + blue * 114 + 500) / 1000)
}

async function headerOf(file: FileHandle): Promise<{ width: number; height: number; offset: number }> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(1024), 0, 1024, 0)
  const match = /^P6\s+(?:#.*\n)*(\d+)\s+(\d+)\s+255\s/.exec(buffer.toString('latin1', 0, bytesRead))
  if (!match) throw new PermanentError('Not a PPM picture with one byte a channel', { code: 'VALIDATION' })
  return { width: Number(match[1]), height: Number(match[2]), offset: match[0].length }
}
