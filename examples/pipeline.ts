import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { type ContextOf, declareJob, defineJob } from '../src/index.ts'

const counts = z.record(z.string(), z.number())

/**
 * Finds the longest frequent words of a folder's text files, in three stages of which each is made from what the last one
 * came to: count the words of each file; add them up for each first letter; find where each letter's favourite stands.
 */
export const pipeline = declareJob({
  type: 'pipeline',
  payload: z.object({ folder: z.string().min(1), minLength: z.int().min(1).default(4) }),
  result: z.object({
    files: z.number(),
    letters: z.array(
      z.object({ letter: z.string(), word: z.string(), count: z.number(), places: z.array(z.string()) }),
    ),
  }),
})

/** Stage 1: how often each word of one file occurs. */
export const pipelineCount = declareJob({
  type: 'pipeline-count',
  payload: z.object({ file: z.string(), minLength: z.int() }),
  result: counts,
})

/** Stage 2: the most frequent word of one letter. */
export const pipelineMerge = declareJob({
  type: 'pipeline-merge',
  payload: z.object({ letter: z.string(), counts: z.array(counts) }),
  result: z.object({ letter: z.string(), word: z.string(), count: z.number() }),
})

/** Stage 3: the files in which a word occurs. */
export const pipelineLocate = declareJob({
  type: 'pipeline-locate',
  payload: z.object({ folder: z.string(), letter: z.string(), word: z.string(), count: z.number() }),
  result: z.object({ places: z.array(z.string()) }),
})

// A figure with a part missing would be a wrong one.
const essential = { onChildFailure: 'fail_parent' } as const

export const pipelineJob = defineJob(pipeline, {
  async ingest(ctx) {
    const { folder, minLength } = ctx.payload
    const files = await textFiles(folder)
    await ctx.spawn(
      files.map((name) => pipelineCount.with({ file: path.join(folder, name), minLength }, { key: name })),
    )
  },
  aggregate(ctx) {
    if (ctx.wave === 1) return merge(ctx)
    if (ctx.wave === 2) return locate(ctx)
    return report(ctx)
  },
})

export const pipelineCountJob = defineJob(pipelineCount, {
  ...essential,
  async run(ctx) {
    const found = new Map<string, number>()
    for (const word of wordsOf(await readFile(ctx.payload.file, 'utf8'))) {
      if (word.length >= ctx.payload.minLength) found.set(word, (found.get(word) ?? 0) + 1)
    }
    return Object.fromEntries(found)
  },
})

export const pipelineMergeJob = defineJob(pipelineMerge, {
  ...essential,
  run(ctx) {
    const sums = new Map<string, number>()
    for (const part of ctx.payload.counts) {
      for (const [word, count] of Object.entries(part)) sums.set(word, (sums.get(word) ?? 0) + count)
    }
    const [word, count] = [...sums].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1))[0]!
    return { letter: ctx.payload.letter, word, count }
  },
})

export const pipelineLocateJob = defineJob(pipelineLocate, {
  ...essential,
  async run(ctx) {
    const places: string[] = []
    for (const name of await textFiles(ctx.payload.folder)) {
      const words = wordsOf(await readFile(path.join(ctx.payload.folder, name), 'utf8'))
      if (words.includes(ctx.payload.word)) places.push(name)
    }
    return { places }
  },
})

type Pipeline = ContextOf<typeof pipeline>

async function merge(ctx: Pipeline): Promise<void> {
  // What each file has of each letter.
  const byLetter = new Map<string, Record<string, number>[]>()
  for await (const { result } of ctx.children(pipelineCount, { states: ['completed'] })) {
    const parts = new Map<string, [string, number][]>()
    for (const entry of Object.entries(result)) {
      const letter = entry[0][0]!
      const part = parts.get(letter)
      if (part) part.push(entry)
      else parts.set(letter, [entry])
    }
    for (const [letter, part] of parts) {
      byLetter.set(letter, [...(byLetter.get(letter) ?? []), Object.fromEntries(part)])
    }
  }
  await ctx.spawn(
    [...byLetter].map(([letter, parts]) => pipelineMerge.with({ letter, counts: parts }, { key: letter })),
  )
}

async function locate(ctx: Pipeline): Promise<void> {
  const { folder } = ctx.payload
  const next = []
  for await (const { result } of ctx.children(pipelineMerge, { states: ['completed'] })) {
    next.push(pipelineLocate.with({ folder, ...result }, { key: result.word }))
  }
  await ctx.spawn(next)
}

async function report(ctx: Pipeline) {
  const letters = []
  for await (const { payload, result } of ctx.children(pipelineLocate, { states: ['completed'] })) {
    const { letter, word, count } = payload
    letters.push({ letter, word, count, places: result.places })
  }
  const { total } = await ctx.childCounts({ wave: 1 })
  return { files: total, letters: letters.sort((a, b) => (a.letter < b.letter ? -1 : 1)) }
}

async function textFiles(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true })
  return entries.flatMap((entry) => (entry.isFile() && /\.(txt|md)$/.test(entry.name) ? [entry.name] : [])).sort()
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[a-z]+/g) ?? []
}
