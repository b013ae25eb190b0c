import { describe, expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import {
  type CancelCode,
  type ContextOf,
  type ContractJob,
  declareJob,
  defineJob,
  type Engine,
  type FailureCode,
  type JobContext,
  type Json,
} from '../../src/index.ts'

const digestFile = declareJob({
  type: 'digest-file',
  payload: z.object({
    path: z.string(),
    since: z
      .string()
      .transform((text) => new Date(text))
      .optional(),
  }),
  result: z.object({ sha256: z.string(), at: z.string().transform((text) => new Date(text)) }),
  checkpoint: z.object({ offset: z.number() }),
})
const plain = declareJob({ type: 'plain' })
const optional = declareJob({ type: 'optional', payload: z.object({ path: z.string().optional() }) })

describe('types', () => {
  test('a payload is what the schema takes, and may be left out where the schema takes an empty one', () => {
    expectTypeOf(digestFile.with).parameter(0).toEqualTypeOf<{ path: string; since?: string | undefined }>()
    // @ts-expect-error there is no payload
    digestFile.with()
    // @ts-expect-error the path is missing
    digestFile.with({})
    optional.with()
    plain.with()
    plain.with({ anything: 1 }, { key: 'k' })
  })

  test('a handler sees what the schemas give, and returns what the result’s schema takes', () => {
    defineJob(digestFile, {
      async run(ctx) {
        expectTypeOf(ctx.payload).toEqualTypeOf<{ path: string; since?: Date | undefined }>()
        expectTypeOf(ctx.saved).toEqualTypeOf<{ offset: number } | null>()
        expectTypeOf(ctx.save).parameter(0).toEqualTypeOf<{ offset: number }>()
        expectTypeOf(ctx.spawn([{ type: 'x' }])).resolves.toEqualTypeOf<string[]>()
        return { sha256: '', at: '2020-01-01' }
      },
    })
    // @ts-expect-error the digest is missing
    defineJob(digestFile, { run: async () => ({ at: '' }) })
    // @ts-expect-error the result is the schema's output, not its input
    defineJob(digestFile, { run: async () => ({ sha256: '', at: new Date() }) })
    // @ts-expect-error both kinds of handlers
    expect(() => defineJob(digestFile, { run: async () => ({ sha256: '', at: '' }), async aggregate() {} })).toThrow()
    defineJob(plain, {
      run(ctx) {
        expectTypeOf(ctx.payload).toEqualTypeOf<Json>()
      },
    })
    defineJob(digestFile, { ingest: async () => {}, aggregate: async () => ({ sha256: '', at: '' }) })
  })

  test('children are a union by state, typed by their contract', () => {
    defineJob(plain, {
      async ingest(ctx) {
        await ctx.spawn([digestFile.with({ path: 'a' }), { type: 'elsewhere' }])
      },
      async aggregate(ctx) {
        for await (const child of ctx.children(digestFile)) {
          expectTypeOf(child.payload.path).toEqualTypeOf<string>()
          if (child.state === 'completed') expectTypeOf(child.result).toEqualTypeOf<{ sha256: string; at: Date }>()
          if (child.state === 'failed')
            expectTypeOf(child.error).toEqualTypeOf<{ message: string; code: FailureCode }>()
          if (child.state === 'cancelled') expectTypeOf(child.cancelCode).toEqualTypeOf<CancelCode>()
          // @ts-expect-error not before the state is known
          child.result
        }
        for await (const child of ctx.children(digestFile, { states: ['completed'] })) {
          expectTypeOf(child.result.sha256).toEqualTypeOf<string>()
        }
        for await (const child of ctx.children({ states: ['completed', 'failed'] })) {
          expectTypeOf(child.state).toEqualTypeOf<'completed' | 'failed'>()
          if (child.state === 'completed') expectTypeOf(child.result).toEqualTypeOf<Json>()
        }
      },
    })
  })

  test('a function that handlers call can name their context', () => {
    const helper = (ctx: ContextOf<typeof digestFile>) => {
      expectTypeOf(ctx.payload.path).toEqualTypeOf<string>()
      expectTypeOf(ctx.saved).toEqualTypeOf<{ offset: number } | null>()
      return { sha256: ctx.payload.path, at: '' }
    }
    const anyContext = (ctx: JobContext) => expectTypeOf(ctx.id).toEqualTypeOf<string>()
    defineJob(digestFile, {
      run(ctx) {
        anyContext(ctx)
        return helper(ctx)
      },
    })
  })

  test('a definition is a contract', () => {
    const definition = defineJob(digestFile, { run: async () => ({ sha256: '', at: '' }) })
    expectTypeOf(definition.with({ path: 'a' })).toExtend<ContractJob>()
    const inPlace = defineJob(
      { type: 'in-place', payload: z.object({ n: z.number() }), result: z.number() },
      { run: (ctx) => ctx.payload.n },
    )
    expectTypeOf(inPlace.with).parameter(0).toEqualTypeOf<{ n: number }>()
  })

  test('a handle knows its result, and waiting for it gives a union by state', () => {
    const use = async (engine: Engine) => {
      const handle = await engine.enqueue(digestFile.with({ path: 'a' }))
      const end = await engine.waitFor(handle, { timeoutMs: 1 })
      if (end.state === 'completed') expectTypeOf(end.result).toEqualTypeOf<{ sha256: string; at: Date }>()
      if (end.state === 'failed') expectTypeOf(end.errorCode).toEqualTypeOf<FailureCode>()
      if (end.state === 'cancelled') expectTypeOf(end.cancelCode).toEqualTypeOf<CancelCode>()
      const other = await engine.waitFor(await engine.enqueue({ type: 'elsewhere', payload: { a: 1 } }))
      if (other.state === 'completed') expectTypeOf(other.result).toEqualTypeOf<Json>()
      const byId = await engine.waitFor('JB_1')
      if (byId.state === 'completed') expectTypeOf(byId.result).toEqualTypeOf<Json>()
      const many = await engine.enqueueMany([digestFile.with({ path: 'a' })])
      expectTypeOf(many[0]!).toEqualTypeOf(handle)
    }
    expect(use).toBeTypeOf('function')
  })
})
