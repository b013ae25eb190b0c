import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { coppiceHere, envOf, killAll, ROOT, type Running, start } from './run.ts'

const WHO = JSON.stringify({ query: '{ viewer { name role } }' })

/** Subscribes, says so, and does nothing more. */
const CLIENT = `
  const { WebSocket } = require('ws')
  const socket = new WebSocket(process.argv[1], 'graphql-transport-ws')
  socket.on('open', () => socket.send('{"type":"connection_init"}'))
  socket.on('message', (data) => {
    const { type } = JSON.parse(data)
    const query = 'subscription { jobEvents { events { job { payload } } ended } }'
    if (type === 'connection_ack') socket.send(JSON.stringify({ id: '1', type: 'subscribe', payload: { query } }))
    else console.log(type)
  })`

describe('access', { timeout: 120_000 }, () => {
  let database: TestDatabase
  const running: Running[] = []
  const clients: ChildProcess[] = []
  beforeAll(async () => {
    database = await createTestDatabase()
  })
  afterEach(async () => {
    for (const client of clients.splice(0)) client.kill('SIGKILL')
    await killAll(running.splice(0))
  })
  afterAll(() => database.drop())

  function serve(env: Record<string, string> = {}): Running {
    const begun = start(['serve', '--port', '0'], { ...envOf(database), ...env })
    running.push(begun)
    return begun
  }

  test('key makes a key that serve takes, also for other machines; its entry does not tell it', async () => {
    const { stdout } = await coppiceHere(['key', 'ci', '--role', 'operator', '--json'])
    const { key, entry, ...rest } = JSON.parse(stdout)
    expect(rest).toEqual({ name: 'ci', role: 'operator' })
    expect(entry).toMatch(/^ci:operator:[0-9a-f]{64}$/)
    expect(entry).not.toContain(key)
    const plain = await coppiceHere(['key', 'ann@example.com', '--role', 'viewer'])
    expect(plain.stdout).toMatch(/\n {2}coppice_[\w-]{43}\n/)
    expect(plain.stdout).toMatch(/\n {2}ann@example\.com:viewer:[0-9a-f]{64}\n/)

    const server = serve({ HOST: '0.0.0.0', COPPICE_API_KEYS: entry })
    const [, port] = await server.said(/at http:\/\/0\.0\.0\.0:(\d+)\/graphql/)
    const ask = (headers: Record<string, string>) =>
      fetch(`http://127.0.0.1:${port}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: WHO,
      })
    expect((await ask({})).status).toBe(401)
    const answer = await ask({ authorization: `Bearer ${key}` })
    expect(await answer.json()).toEqual({ data: { viewer: { name: 'ci', role: 'OPERATOR' } } })
    server.child.kill('SIGTERM')
    const ended = await server.ended
    expect(ended.code).toBe(0)
    expect(ended.stdout + ended.stderr).not.toContain(key)
  })

  test('what is wrong with a key or the settings is said, and no secret is', async () => {
    for (const args of [['key', 'ci'], ['key', 'a b', '--role', 'viewer'], ['key', 'ci', '--role', 'boss'], ['key']]) {
      expect(await coppiceHere(args), args.join(' ')).toMatchObject({ code: 2, stdout: '' })
    }
    const secret = 'secret-but-too-short'
    const server = serve({ COPPICE_JWT_SECRET: secret, COPPICE_API_KEYS: `ci:boss:${secret}`, COPPICE_MAX_DEPTH: '1' })
    const ended = await server.ended
    expect(ended.code).toBe(2)
    expect(ended.stderr).toMatch(/COPPICE_API_KEYS is \(not shown\): expected entries such as ci:operator:HASH/)
    expect(ended.stderr).toMatch(/COPPICE_JWT_SECRET is \(not shown\): expected at least 32 bytes/)
    expect(ended.stderr).toMatch(/COPPICE_MAX_DEPTH is "1": expected a whole number from 5/)
    expect(ended.stderr).not.toContain(secret)
  })

  test('SIGTERM ends serve in time, with a client that is frozen', async () => {
    const server = serve()
    const [, url] = await server.said(/at http(:\/\/\S+\/graphql)/)
    const client = spawn(process.execPath, ['-e', CLIENT, `ws${url}`], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    clients.push(client)
    const [said] = await once(client.stdout!.setEncoding('utf8'), 'data')
    expect(said).toContain('next')
    client.kill('SIGSTOP')
    const started = performance.now()
    server.child.kill('SIGTERM')
    expect(await server.ended).toMatchObject({ code: 0, signal: null })
    // Five seconds for the straggler, and a busy machine.
    expect(performance.now() - started).toBeGreaterThan(4000)
    expect(performance.now() - started).toBeLessThan(12_000)
    expect(server.stderr).toMatch(/"msg":"Stopped"/)
    client.kill('SIGCONT')
    await until(() => client.exitCode !== null, { what: 'the client, which learns that it was cut' })
  })
})
