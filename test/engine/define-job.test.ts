import type { StandardSchemaV1 } from '@standard-schema/spec'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob } from '../../src/engine/definition/contract.ts'
import { defineJob, isJobDefinition } from '../../src/engine/definition/define-job.ts'
import { handlerFor } from '../../src/engine/definition/handler-for.ts'
import { createJobRegistry, type JobRegistry } from '../../src/engine/definition/job-registry.ts'
import { ValidationError } from '../../src/engine/errors.ts'
import type { Job, Json } from '../../src/engine/job.ts'
import { prepareJobs, prepareOneJob } from '../../src/engine/prepare.ts'
import { attemptLimit } from '../../src/engine/worker/attempt-limit.ts'
import { resultOf } from '../../src/engine/worker/result.ts'
import type { NewJob } from '../../src/index.ts'

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

describe('contracts make jobs', () => {
  test('with payload and options, and nothing that JSON would show', () => {
    const job = digestFile.with({ path: 'a' }, { key: 'k', priority: 3, maxRetries: 0 })
    expect(job).toMatchObject({ type: 'digest-file', payload: { path: 'a' }, key: 'k', priority: 3, maxRetries: 0 })
    expect(Object.keys(job).sort()).toEqual(['key', 'maxRetries', 'payload', 'priority', 'type'])
    expect(JSON.parse(JSON.stringify(plain.with()))).toEqual({ type: 'plain' })
  })

  test('type and payload are the contract’s, whatever the options say', () => {
    const job = plain.with({ a: 1 }, { type: 'other', payload: {} } as object)
    expect(job).toMatchObject({ type: 'plain', payload: { a: 1 } })
  })

  test('a type needs a name', () => {
    expect(() => declareJob({ type: '' })).toThrow(ValidationError)
  })
})

describe('definitions', () => {
  const run = async () => {}

  test('are contracts, and known as definitions, also those of another copy of this package', async () => {
    const definition = defineJob(digestFile, { run: async () => ({ sha256: '', at: '' }) })
    expect(definition.with({ path: 'a' }).type).toBe('digest-file')
    expect(isJobDefinition(definition)).toBe(true)
    expect(isJobDefinition(digestFile)).toBe(false)
    expect(isJobDefinition(null)).toBe(false)
    const url = new URL('../../src/engine/definition/define-job.ts?copy', import.meta.url).href
    const copy = (await import(/* @vite-ignore */ url)) as typeof import('../../src/engine/definition/define-job.ts')
    expect(copy.defineJob).not.toBe(defineJob)
    expect(isJobDefinition(copy.defineJob({ type: 'x' }, { run }))).toBe(true)
  })

  test('need handlers that go together', () => {
    const define = (source: object) => () => defineJob({ type: 'x' }, source as { run(): void })
    expect(define({})).toThrow(ValidationError)
    expect(define({ aggregate: run })).toThrow(ValidationError)
    expect(define({ run, aggregate: run })).toThrow(ValidationError)
    expect(define({ run, ingest: run })).toThrow(ValidationError)
    expect(define({ ingest: run })).not.toThrow()
  })

  test('check their settings, all at once', () => {
    const bad = { run, timeouts: { ingest: '5 parsecs', wait: -1 }, backoff: { initial: 'soon', factor: 0.5 } }
    const error = (() => {
      try {
        return defineJob({ type: 'x' }, bad)
      } catch (error) {
        return error as ValidationError
      }
    })()
    expect(error).toBeInstanceOf(ValidationError)
    expect((error as ValidationError).issues.map((issue) => issue.path.join('.'))).toEqual([
      'x.timeouts.ingest',
      'x.timeouts.wait',
      'x.backoff',
      'x.backoff.factor',
    ])
  })

  test.each([
    [{ limit: 0 }, ['limit']],
    [{ limit: 1.5 }, ['limit']],
    [{ limit: 2 ** 31 }, ['limit']],
    [{ limit: '3' }, ['limit']],
    [{}, ['limit']],
    [{ limit: 1, key: 'user' }, ['key']],
    [{ limit: 2 ** 31 - 1 }, []],
    [{ limit: 1, key: () => '' }, []],
  ])('a concurrency limit of %j is checked', (concurrency, wrong) => {
    const issues = (() => {
      try {
        defineJob({ type: 'x' }, { run, concurrency } as never)
        return []
      } catch (error) {
        return (error as ValidationError).issues
      }
    })()
    expect(issues.map((issue) => issue.path.join('.'))).toEqual(wrong.map((name) => `x.concurrency.${name}`))
  })

  test('handlers keep their `this`', async () => {
    class Handlers {
      word = 'kept'
      async run() {
        return this.word
      }
    }
    const definition = defineJob({ type: 'x' }, new Handlers())
    expect(await definition.handlers.run?.({} as never)).toBe('kept')
  })

  test('two of one type are refused', () => {
    const [a, b] = [defineJob({ type: 'x' }, { run }), defineJob({ type: 'x' }, { run })]
    expect(() => createJobRegistry([a, b])).toThrow(ValidationError)
    expect(createJobRegistry([a, a]).types).toEqual(['x'])
  })
})

describe('jobs of known types at the door', () => {
  const known = createJobRegistry([
    defineJob(digestFile, {
      queue: 'disk',
      maxRetries: 5,
      timeouts: { ingest: '1m', aggregate: 'none', wait: '1h' },
      run: async () => ({ sha256: '', at: '' }),
    }),
  ])

  test('get the defaults of their type, where they say nothing', async () => {
    const prepared = await prepareOneJob(digestFile.with({ path: 'a' }), known)
    expect(prepared).toMatchObject({ queue: 'disk', maxRetries: 5, timeouts: { ingest: 60_000, wait: 3_600_000 } })
    const own = await prepareOneJob(digestFile.with({ path: 'a' }, { queue: 'q', timeouts: { ingest: 5 } }), known)
    expect(own).toMatchObject({ queue: 'q', timeouts: { ingest: 5, wait: 3_600_000 } })
  })

  test('keep their payload as it was given', async () => {
    const payload = { path: 'a', since: '2020-01-01' }
    expect(JSON.parse((await prepareOneJob(digestFile.with(payload), known)).payload)).toEqual(payload)
  })

  test('are refused with every issue, at every depth', async () => {
    const bad: NewJob = { type: 'digest-file', payload: { path: 1 }, children: [{ type: 'digest-file' }] }
    const error = await prepareJobs([{ type: 'elsewhere' }, bad], known).catch((error: unknown) => error)
    expect(error).toBeInstanceOf(ValidationError)
    expect((error as ValidationError).issues.map((issue) => issue.path.join('.')).sort()).toEqual([
      '1.children.0.payload.path',
      '1.payload.path',
    ])
  })

  test('are seen by the schema as JSON makes them', async () => {
    const withDate = createJobRegistry([
      defineJob({ type: 'dated', payload: z.object({ at: z.date() }) }, { run() {} }),
    ])
    await expect(prepareOneJob({ type: 'dated', payload: { at: new Date() } }, withDate)).rejects.toThrow(
      ValidationError,
    )
  })

  test('schemas may be asynchronous', async () => {
    const even = z.number().refine(async (n) => n % 2 === 0, 'must be even')
    const types = createJobRegistry([defineJob({ type: 'even', payload: even }, { run() {} })])
    await expect(prepareOneJob({ type: 'even', payload: 2 }, types)).resolves.toMatchObject({ payload: '2' })
    await expect(prepareOneJob({ type: 'even', payload: 3 }, types)).rejects.toThrow('payload: must be even')
  })

  test('any Standard Schema will do', async () => {
    const upper: StandardSchemaV1<string, string> = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value) =>
          typeof value === 'string' && value === value.toUpperCase()
            ? { value }
            : { issues: [{ message: 'must be upper case', path: [{ key: 'deep' }, 0] }] },
      },
    }
    const types = createJobRegistry([defineJob({ type: 'upper', payload: upper }, { run() {} })])
    await expect(prepareOneJob({ type: 'upper', payload: 'a' }, types)).rejects.toThrow(
      'payload.deep.0: must be upper case',
    )
  })
})

describe('concurrency keys', () => {
  const limited = (concurrency: { limit: number; key?: (payload: Json) => string }) =>
    createJobRegistry([defineJob({ type: 'x' }, { concurrency, run() {} })])
  const keyOf = async (known: JobRegistry, job: Partial<NewJob> = {}) =>
    (await prepareOneJob({ type: 'x', ...job }, known)).concurrencyKey

  test('are empty without a function, and absent without a limit', async () => {
    expect(await keyOf(limited({ limit: 1 }))).toBe('')
    expect(await keyOf(createJobRegistry([defineJob({ type: 'x' }, { run() {} })]))).toBeNull()
    expect(await keyOf(createJobRegistry([]))).toBeNull()
  })

  test('are what the function says, unless the job says it itself', async () => {
    const known = limited({ limit: 1, key: (payload) => JSON.stringify(payload) })
    expect(await keyOf(known, { payload: { at: new Date(0) } })).toBe('{"at":"1970-01-01T00:00:00.000Z"}')
    expect(await keyOf(known, { concurrencyKey: 'own' })).toBe('own')
    expect(await keyOf(known, { concurrencyKey: '' })).toBe('')
  })

  test.each([
    ['no text', () => 7 as never],
    ['too long', () => 'x'.repeat(201)],
    ['with a NUL', () => 'a\0'],
    ['half a character', () => '\ud800'],
    [
      'thrown',
      () => {
        throw new Error('no')
      },
    ],
  ])('that are malformed are refused: %s', async (_what, key) => {
    await expect(keyOf(limited({ limit: 1, key }))).rejects.toMatchObject({ issues: [{ path: ['concurrencyKey'] }] })
  })

  test('given by the job are checked too', async () => {
    await expect(keyOf(createJobRegistry([]), { concurrencyKey: 'x'.repeat(201) })).rejects.toMatchObject({
      issues: [{ path: ['concurrencyKey'] }],
    })
  })
})

describe('results', () => {
  const typed = defineJob({ type: 'x', result: z.object({ n: z.number() }) }, { run: () => ({ n: 1 }) })
  const untyped = defineJob({ type: 'y' }, { run() {} })

  test('undefined is null, where the schema allows either', async () => {
    expect(await resultOf(untyped, undefined)).toBeNull()
    expect(await resultOf(defineJob({ type: 'z', result: z.void() }, { run() {} }), undefined)).toBeNull()
    expect(await resultOf(defineJob({ type: 'z', result: z.null() }, { run: () => null }), undefined)).toBeNull()
    await expect(resultOf(typed, undefined)).rejects.toThrow(ValidationError)
  })

  test.each([
    ['what the schema refuses', typed, { n: 'one' }],
    [
      'a cycle',
      untyped,
      (() => {
        const a: { a?: unknown } = {}
        a.a = a
        return a
      })(),
    ],
    ['a BigInt', untyped, { n: 1n }],
    ['a function', untyped, () => {}],
    ['a NUL', untyped, { text: 'a\0b' }],
    ['half a character', untyped, { text: '\ud800' }],
    ['more than 1 MiB', untyped, 'x'.repeat(1024 * 1024)],
  ] as const)('%s is refused', async (_what, definition, value) => {
    await expect(resultOf(definition, value)).rejects.toThrow(ValidationError)
  })

  test('are kept as they were when they were returned', async () => {
    const value = { at: new Date(0), gone: undefined }
    expect(await resultOf(untyped, value)).toEqual({ at: '1970-01-01T00:00:00.000Z' })
  })
})

describe('which handler runs', () => {
  const one = defineJob({ type: 'one' }, { run: () => 'run' })
  const two = defineJob({ type: 'two' }, { ingest: () => 'ingest', aggregate: () => 'aggregate' })
  const ingestOnly = defineJob({ type: 'ingest-only' }, { ingest: () => 'ingest' })
  const chosen = (job: Partial<Job>, definition: typeof one | typeof two | typeof ingestOnly) =>
    handlerFor(job as Job, definition)?.({} as never)

  test('by phase, and by whether the job was enqueued with its children', () => {
    const ingest = { phase: 'ingest', skippedIngest: false, spawnWave: 0 } as const
    const spawned = { phase: 'aggregate', skippedIngest: false, spawnWave: 1 } as const
    const nested = { phase: 'aggregate', skippedIngest: true, spawnWave: 1 } as const
    const nestedAndSpawned = { phase: 'aggregate', skippedIngest: true, spawnWave: 2 } as const
    expect([ingest, spawned, nested, nestedAndSpawned].map((job) => chosen(job, one))).toEqual([
      'run',
      undefined,
      'run',
      undefined,
    ])
    expect([ingest, spawned, nested].map((job) => chosen(job, two))).toEqual(['ingest', 'aggregate', 'aggregate'])
    expect([ingest, spawned, nested].map((job) => chosen(job, ingestOnly))).toEqual(['ingest', undefined, undefined])
  })
})

test('the limit of an attempt is the job’s, else the type’s, else 24 h', () => {
  const limited = defineJob({ type: 'x' }, { run() {}, timeouts: { ingest: '2m', aggregate: 'none' } })
  const unlimited = defineJob({ type: 'y' }, { run() {} })
  expect(attemptLimit({ phase: 'ingest', timeouts: { ingest: 7 } }, limited)).toBe(7)
  expect(attemptLimit({ phase: 'ingest', timeouts: {} }, limited)).toBe(120_000)
  expect(attemptLimit({ phase: 'aggregate', timeouts: {} }, limited)).toBeNull()
  expect(attemptLimit({ phase: 'ingest', timeouts: {} }, unlimited)).toBe(86_400_000)
})
