import dns from 'node:dns/promises'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import pg from 'pg'
import { describe, expect, inject, test } from 'vitest'
import { z } from 'zod'
import { ValidationError } from '../../src/engine/errors.ts'
import { classify } from '../../src/engine/failure/classify.ts'
import { describeError, MAX_MESSAGE_BYTES, MAX_STACK_BYTES, storable } from '../../src/engine/failure/describe-error.ts'
import { PermanentError, RetryableError, SnoozeError } from '../../src/engine/failure/handler-errors.ts'
import { FAILURE_CODES } from '../../src/engine/job.ts'

/** What a piece of code really throws. */
async function thrownBy(run: () => unknown): Promise<unknown> {
  try {
    await run()
  } catch (error) {
    return error
  }
  throw new Error('It did not throw.')
}

async function withServer<T>(listener: http.RequestListener, use: (url: string) => Promise<T>): Promise<T> {
  const server = http.createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    return await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

describe('real errors are classified by what they are', () => {
  test('a refused connection of fetch, whose code is in its cause', async () => {
    const url = await withServer(
      () => {},
      async (url) => url,
    )
    const error = await thrownBy(() => fetch(url))
    expect(classify(error)).toEqual({ verdict: 'retry', code: 'NETWORK' })
  })

  test('a connection that fetch loses in the middle', async () => {
    const error = await withServer(
      (_request, response) => response.destroy(),
      (url) => thrownBy(() => fetch(url)),
    )
    expect(classify(error)).toEqual({ verdict: 'retry', code: 'NETWORK' })
  })

  test('an AbortSignal that timed out, of fetch and by itself', async () => {
    const error = await withServer(
      () => {},
      (url) => thrownBy(() => fetch(url, { signal: AbortSignal.timeout(20) })),
    )
    expect(classify(error)).toEqual({ verdict: 'retry', code: 'TIMEOUT' })
    const aborted = await thrownBy(() => AbortSignal.abort().throwIfAborted())
    expect(classify(aborted).code).toBe('TIMEOUT')
  })

  test('a name that does not resolve', async () => {
    const error = await thrownBy(() => dns.lookup('no-such-host.invalid'))
    expect(classify(error)).toEqual({ verdict: 'retry', code: 'NETWORK' })
  })

  test('a file that is not there, and a folder read as a file', async () => {
    expect(classify(await thrownBy(() => readFile('/no/such/file')))).toEqual({ verdict: 'fail', code: 'NOT_FOUND' })
    expect(classify(await thrownBy(() => readFile('/tmp')))).toEqual({ verdict: 'fail', code: 'VALIDATION' })
    expect(classify(await thrownBy(() => readdir('/etc/hostname'))).code).toBe('NOT_FOUND')
  })

  test('JSON that is none', async () => {
    expect(classify(await thrownBy(() => JSON.parse('{')))).toEqual({ verdict: 'fail', code: 'PARSE' })
  })

  test('a schema that refuses', async () => {
    expect(classify(await thrownBy(() => z.object({ a: z.number() }).parse({})))).toEqual({
      verdict: 'fail',
      code: 'VALIDATION',
    })
    expect(classify(ValidationError.of('a', 'is wrong')).code).toBe('VALIDATION')
    const anyStandardSchema = Object.assign(new Error('no'), { issues: [{ message: 'is wrong' }] })
    expect(classify(anyStandardSchema).code).toBe('VALIDATION')
  })

  test('errors of PostgreSQL, by SQLSTATE', async () => {
    const client = new pg.Client({ connectionString: inject('testServer').connectionString })
    await client.connect()
    try {
      const codeOf = async (sql: string) => classify(await thrownBy(() => client.query(sql)))
      expect(await codeOf('select 1/0')).toEqual({ verdict: 'fail', code: 'VALIDATION' })
      expect(await codeOf('select nothing from nowhere')).toEqual({ verdict: 'fail', code: 'VALIDATION' })
      expect(await codeOf("do $$ begin raise 'no' using errcode = '40001'; end $$")).toEqual({
        verdict: 'retry',
        code: 'DATABASE',
      })
      expect(await codeOf('set statement_timeout = 10; select pg_sleep(10)')).toEqual({
        verdict: 'retry',
        code: 'TIMEOUT',
      })
    } finally {
      await client.end()
    }
  })

  test.each([
    [429, 'RATE_LIMITED', 'retry'],
    [408, 'TIMEOUT', 'retry'],
    [500, 'NETWORK', 'retry'],
    [503, 'NETWORK', 'retry'],
    [504, 'TIMEOUT', 'retry'],
    [404, 'NOT_FOUND', 'fail'],
    [401, 'VALIDATION', 'fail'],
    [422, 'VALIDATION', 'fail'],
  ] as const)('HTTP status %i', (status, code, verdict) => {
    expect(classify(Object.assign(new Error('no'), { status }))).toEqual({ verdict, code })
    expect(classify(Object.assign(new Error('no'), { statusCode: status }))).toEqual({ verdict, code })
    expect(classify(Object.assign(new Error('no'), { response: { status } }))).toEqual({ verdict, code })
  })

  test('errors of AI calls', () => {
    const apiCall = Object.assign(new Error('overloaded'), { name: 'AI_APICallError', statusCode: 529 })
    expect(classify(apiCall)).toEqual({ verdict: 'retry', code: 'AI_FAILURE' })
    expect(classify(Object.assign(apiCall, { statusCode: 429 })).code).toBe('RATE_LIMITED')
  })

  test('words in a message say nothing', () => {
    for (const message of [
      'ECONNREFUSED',
      'timeout',
      'rate limit 429',
      'not found',
      'parse error',
      'database is down',
    ]) {
      expect(classify(new Error(message))).toEqual({ verdict: 'retry', code: 'UNKNOWN' })
    }
  })

  test('every code can be given by the error itself', () => {
    for (const code of FAILURE_CODES) expect(classify(Object.assign(new Error('no'), { code })).code).toBe(code)
  })
})

describe('what a handler asks for', () => {
  test('is done, whatever the code', () => {
    expect(classify(new PermanentError('no', { code: 'NETWORK' }))).toEqual({ verdict: 'fail', code: 'NETWORK' })
    expect(classify(new RetryableError('again', { code: 'VALIDATION', delay: '5s', operation: 'upload' }))).toEqual({
      verdict: 'retry',
      code: 'VALIDATION',
      delayMs: 5000,
      operation: 'upload',
    })
    expect(classify(new SnoozeError('2m'))).toEqual({ verdict: 'snooze', code: 'UNKNOWN', delayMs: 120_000 })
  })

  test('takes its code from the cause if it gives none', async () => {
    const cause = await thrownBy(() => readFile('/no/such/file'))
    expect(classify(new RetryableError('again', { cause }))).toEqual({ verdict: 'retry', code: 'NOT_FOUND' })
  })

  test('counts as a cause too', () => {
    expect(classify(new Error('outer', { cause: new PermanentError('inner') })).verdict).toBe('fail')
  })

  test('counts with classes of another copy of this package', async () => {
    const url = new URL('../../src/engine/failure/handler-errors.ts?copy', import.meta.url).href
    const copy = (await import(/* @vite-ignore */ url)) as typeof import('../../src/engine/failure/handler-errors.ts')
    expect(copy.PermanentError).not.toBe(PermanentError)
    expect(classify(new copy.PermanentError('no')).verdict).toBe('fail')
  })

  test('comes before isRetryable, which comes before the code', () => {
    expect(classify(new PermanentError('no'), () => true).verdict).toBe('fail')
    expect(classify(new Error('no'), () => false)).toEqual({ verdict: 'fail', code: 'UNKNOWN' })
    expect(classify(new SyntaxError('no'), (_error, code) => code === 'PARSE').verdict).toBe('retry')
    expect(classify(new SyntaxError('no'), () => undefined).verdict).toBe('fail')
  })

  test('a predicate that throws has no say', () => {
    const broken = () => {
      throw new Error('broken')
    }
    expect(classify(new SyntaxError('no'), broken).verdict).toBe('fail')
  })
})

describe('whatever can be thrown is described and stored', () => {
  test.each([
    ['text', 'out of paper', 'out of paper'],
    ['undefined', undefined, 'undefined'],
    ['null', null, 'null'],
    ['a number', 7, '7'],
    ['an object', { a: 1 }, '{ a: 1 }'],
    ['an object with a message', { message: 'out of ink' }, 'out of ink'],
    ['an error without a message', new Error(''), 'The error has no message.'],
    ['an error with its name only', new TypeError(''), 'TypeError'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
  ])('%s', (_what, thrown, message) => {
    expect(describeError(thrown).message).toBe(message)
    expect(classify(thrown)).toEqual({ verdict: 'retry', code: 'UNKNOWN' })
  })

  test('circular causes', () => {
    const a = new Error('a')
    const b = new Error('b', { cause: a })
    a.cause = b
    expect(describeError(a).message).toBe('a: b')
    expect(classify(a).code).toBe('UNKNOWN')
  })

  test('getters and proxies that throw', () => {
    const hostile = new Proxy(new Error('x'), {
      get() {
        throw new Error('no')
      },
    })
    expect(classify(hostile).code).toBe('UNKNOWN')
    expect(describeError(hostile).message).not.toBe('')
  })

  test('the cause of a failed fetch is told, once', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' })
    expect(describeError(new TypeError('fetch failed', { cause })).message).toBe(
      'fetch failed: connect ECONNREFUSED 127.0.0.1:1',
    )
    expect(describeError(new Error(`cannot load: ${cause.message}`, { cause })).message).toBe(
      `cannot load: ${cause.message}`,
    )
  })

  test('NUL, half characters and great length', () => {
    const error = new Error(`a\0b\ud800c${'é'.repeat(100_000)}`)
    const { message, stack } = describeError(error)
    expect(message.startsWith('a\ufffdb\ufffdcé')).toBe(true)
    expect(Buffer.byteLength(message)).toBeLessThanOrEqual(MAX_MESSAGE_BYTES)
    expect(Buffer.byteLength(message)).toBeGreaterThan(MAX_MESSAGE_BYTES - 4)
    expect(Buffer.byteLength(stack!)).toBeLessThanOrEqual(MAX_STACK_BYTES)
    expect(stack!.includes('\0')).toBe(false)
  })

  test('no character is cut in two', () => {
    for (let max = 0; max < 20; max++) {
      const cut = storable('aé€😀b😀', max)
      expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(max)
      expect('aé€😀b😀'.startsWith(cut.replace(/\ufffd$/, ''))).toBe(true)
    }
  })

  test('AggregateError: of its members', () => {
    const members = [new Error('x'), Object.assign(new Error('y'), { code: 'ECONNRESET' })]
    expect(classify(new AggregateError(members)).code).toBe('NETWORK')
  })
})
