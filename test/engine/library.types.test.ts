import type { Kysely, Transaction } from 'kysely'
import type pg from 'pg'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import {
  type CancelCode,
  createEngine,
  declareJob,
  defineJob,
  type Engine,
  type FailureCode,
  type JobContext,
  type Json,
  type NewJob,
  type StreamedChildren,
} from '../../src/index.ts'
import { givenChild, runPhase, type SpawnedChild, type TestEngine, testEngine } from '../../src/testing/index.ts'

// Checked by the compiler; what runs here only defines. A wrong use is one that the compiler must refuse.

const day = z.string().transform((text) => new Date(text))
const digestFile = declareJob({
  type: 'digest-file',
  payload: z.object({ path: z.string(), since: day.optional() }),
  result: z.object({ sha256: z.string(), at: day }),
  checkpoint: z.object({ offset: z.number() }),
})
// Spawns itself: by its contract, before it is defined.
const digestFolder = declareJob({
  type: 'digest-folder',
  payload: z.object({ path: z.string() }),
  result: z.object({ files: z.number() }),
})

const digestFileJob = defineJob(digestFile, { run: async (ctx) => ({ sha256: ctx.payload.path, at: '2020-01-01' }) })
const digestFolderJob = defineJob(digestFolder, {
  async ingest(ctx) {
    await ctx.spawn([
      digestFile.with({ path: 'a' }, { key: 'a' }),
      digestFolder.with({ path: ctx.payload.path }, { key: 'b', onChildFailure: 'ignore' }),
    ])
  },
  async aggregate(ctx) {
    let files = 0
    for await (const child of ctx.children(digestFolder, { states: ['completed'] })) files += child.result.files
    for await (const child of ctx.children(digestFile)) {
      if (child.state === 'completed') expectTypeOf(child.result.at).toEqualTypeOf<Date>()
      // @ts-expect-error the result of a child that may have failed
      child.result
    }
    return { files }
  },
})

/** Never called: a place for uses that only the compiler looks at. */
const unused = (use: (engine: Engine, ctx: JobContext) => unknown) => expect(use).toBeTypeOf('function')

describe('types, end to end', () => {
  test('recursive types are typed by their contracts', () => {
    expectTypeOf(digestFolderJob.with).parameter(0).toEqualTypeOf<{ path: string }>()
    // @ts-expect-error the result of a folder is not that of a file
    defineJob(digestFolder, { run: async () => ({ sha256: '', at: '' }) })
    // @ts-expect-error a folder has a path
    digestFolder.with({ folder: 'a' })
    // @ts-expect-error an option that no job has
    digestFolder.with({ path: 'a' }, { retries: 3 })
    // @ts-expect-error what the schema takes is text, what it gives is a Date
    digestFile.with({ path: 'a', since: new Date() })
  })

  test('spawn gives ids for an array, and counts for a stream', () => {
    unused(async (_engine, ctx) => {
      expectTypeOf(await ctx.spawn([digestFile.with({ path: 'a' })])).toEqualTypeOf<string[]>()
      expectTypeOf(await ctx.spawn([{ type: 'elsewhere', payload: { a: 1 }, children: [] }])).toEqualTypeOf<string[]>()
      async function* files(): AsyncGenerator<NewJob> {
        yield digestFile.with({ path: 'a' }, { key: 'a' })
      }
      function* more() {
        yield digestFolder.with({ path: 'a' }, { key: 'a' })
      }
      expectTypeOf(await ctx.spawn(files())).toEqualTypeOf<StreamedChildren>()
      expectTypeOf(await ctx.spawn(more())).toEqualTypeOf<{ created: number; existing: number }>()
      // @ts-expect-error one job is no list of jobs
      await ctx.spawn(digestFile.with({ path: 'a' }))
      // @ts-expect-error jobs have a type
      await ctx.spawn([{ payload: {} }])
      // @ts-expect-error texts are no jobs
      await ctx.spawn('abc')
    })
  })

  test('checkpoints are what their schema says', () => {
    defineJob(digestFile, {
      async run(ctx) {
        expectTypeOf(ctx.saved).toEqualTypeOf<{ offset: number } | null>()
        await ctx.save({ offset: 1 })
        // @ts-expect-error the offset is a number
        await ctx.save({ offset: '1' }).catch(() => {})
        // @ts-expect-error null until something was saved
        ctx.saved.offset
        return { sha256: '', at: '' }
      },
    })
    unused((_engine, ctx) => expectTypeOf(ctx.saved).toEqualTypeOf<unknown>())
  })

  test('a handle knows its result; waiting for it gives a union by state', () => {
    unused(async (engine) => {
      const end = await engine.waitFor(await engine.enqueue(digestFolderJob.with({ path: 'a' })))
      expectTypeOf(end.state).toEqualTypeOf<'completed' | 'failed' | 'cancelled'>()
      // @ts-expect-error not before the state is known
      end.result
      switch (end.state) {
        case 'completed':
          expectTypeOf(end.result).toEqualTypeOf<{ files: number }>()
          // @ts-expect-error it did not fail
          end.error
          break
        case 'failed':
          expectTypeOf(end.errorCode).toEqualTypeOf<FailureCode>()
          expectTypeOf(end.error).toEqualTypeOf<string>()
          break
        case 'cancelled':
          expectTypeOf(end.cancelCode).toEqualTypeOf<CancelCode>()
      }
      const plain = await engine.waitFor(await engine.enqueue({ type: 'elsewhere', payload: { a: 1 } }))
      if (plain.state === 'completed') expectTypeOf(plain.result).toEqualTypeOf<Json>()
      // @ts-expect-error a job has a type
      await engine.enqueue({ payload: {} })
    })
  })

  test('a transaction is a client of pg or a transaction of Kysely, whatever its tables', () => {
    unused(async (engine) => {
      const job = digestFile.with({ path: 'a' })
      const given = <T>(value: T) => value
      await engine.enqueue(job, { transaction: given<pg.Client>({} as never) })
      await engine.enqueue(job, { transaction: given<pg.PoolClient>({} as never) })
      await engine.enqueueMany([job], { transaction: given<Transaction<{ orders: { id: string } }>>({} as never) })
      // Not every transaction is given one.
      await engine.enqueue(job, { transaction: undefined })
      await given<Kysely<{ orders: { id: string } }>>({} as never)
        .transaction()
        .execute((transaction) => engine.enqueue(job, { transaction }))
      // @ts-expect-error a connection string is no transaction
      await engine.enqueue(job, { transaction: 'postgres://' })
    })
  })

  test('definitions are what an engine takes', () => {
    createEngine({ connectionString: 'postgres://nowhere', jobs: [digestFileJob, digestFolderJob] })
    // @ts-expect-error a contract does not say how it runs
    expect(() => createEngine({ connectionString: 'postgres://nowhere', jobs: [digestFile] })).toThrow()
  })
})

describe('types of coppice/testing', () => {
  test('runPhase is typed by its definition', () => {
    unused(async () => {
      const run = await runPhase(digestFileJob, 'ingest', { payload: { path: 'a' }, saved: { offset: 1 } })
      expectTypeOf(run.saved).toEqualTypeOf<{ offset: number } | null>()
      expectTypeOf(run.spawned).toEqualTypeOf<SpawnedChild[]>()
      expectTypeOf(run.result).toEqualTypeOf<{ sha256: string; at: Date } | undefined>()
      if (run.outcome === 'completed') expectTypeOf(run.result.at).toEqualTypeOf<Date>()
      if (run.outcome === 'failed') expectTypeOf(run.error.code).toEqualTypeOf<FailureCode>()
      if (run.outcome === 'retry') expectTypeOf(run.delayMs).toEqualTypeOf<number>()
      // @ts-expect-error the path is a text
      await runPhase(digestFileJob, 'ingest', { payload: { path: 7 } })
      // @ts-expect-error no such phase
      await runPhase(digestFileJob, 'run')
      // @ts-expect-error a contract cannot be run
      await runPhase(digestFile, 'ingest')
      givenChild(digestFile, { state: 'completed', payload: { path: 'a' }, result: { sha256: '', at: '2020-01-01' } })
      // @ts-expect-error the result is what the handler returns
      givenChild(digestFile, { state: 'completed', result: { sha256: '', at: new Date() } })
      // @ts-expect-error a completed child has a result
      givenChild(digestFile, { state: 'completed' })
    })
  })

  test('a test engine is an engine', () => {
    unused(async () => {
      const engine = await testEngine([digestFileJob], { concurrency: 5 })
      expectTypeOf(engine).toEqualTypeOf<TestEngine>()
      expectTypeOf(engine).toExtend<Engine>()
      expectTypeOf((await engine.drain({ skipDelays: true, timeout: '5s' })).completed).toEqualTypeOf<number>()
      // @ts-expect-error it makes a schema of its own
      await testEngine([], { schema: 'mine' })
    })
  })
})
