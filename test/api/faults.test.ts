import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { createEngine } from '../../src/index.ts'
import { createServer } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const JSON_TYPE = { 'content-type': 'application/json' }

test('ready tells the database, the schema and the feed', async () => {
  const ready = await fetch(`${api.server.url}/readyz`)
  expect(ready.status).toBe(200)
  expect(await ready.json()).toEqual({
    ready: true,
    database: 'reached',
    schema: 'current',
    feed: 'listening',
    stopping: false,
  })
  await api.test.pool.query(`insert into coppice.migration (version, name, checksum) values (9999, 'later', 'x')`)
  const newer = await fetch(`${api.server.url}/readyz`)
  await api.test.pool.query('delete from coppice.migration where version = 9999')
  expect(newer.status).toBe(503)
  expect(await newer.json()).toMatchObject({ ready: false, schema: 'newer' })
})

test('faults of ours are masked and logged under their errorId; nothing of their text leaks', async () => {
  const at = api.log.length
  const [broken] = await api.engine.enqueueMany([{ type: 'broken' }])
  // A state that no version of the program knows: a fault of the database's contents.
  await api.test.pool.query(
    `alter table coppice.job drop constraint job_state_check;
     update coppice.job set state = 'secret-state' where type = 'broken'`,
  )
  const answer = await api.run(`{ nodes(ids: ["JB_${broken!.id}"]) { id ... on Job { state } } viewer { name } }`)
  await api.test.pool.query(`delete from coppice.job where type = 'broken'`)
  expect(answer.data).toMatchObject({ nodes: [null] })
  expect(answer.errors).toEqual([
    {
      message: 'Internal error.',
      locations: expect.any(Array),
      path: ['nodes', 0, 'state'],
      extensions: { code: 'INTERNAL', errorId: expect.stringMatching(/^[0-9a-f-]{36}$/) },
    },
  ])
  expect(JSON.stringify(answer)).not.toContain('secret-state')
  const logged = api.log.slice(at)
  expect(logged).toHaveLength(1)
  expect(logged[0]).toMatchObject({ errorId: answer.errors![0]!.extensions.errorId, level: 50 })
  expect(JSON.stringify(logged)).toContain('secret-state')

  // The same on a socket.
  await api.test.pool.query('alter table coppice.job rename column queue to kew')
  const socket = await api.socket()
  socket.subscribe('1', '{ jobs { nodes { id } } }')
  await socket.frame('1', 'complete')
  await api.test.pool.query('alter table coppice.job rename column kew to queue')
  expect(socket.next('1')[0].errors).toEqual([
    expect.objectContaining({
      message: 'Internal error.',
      extensions: { code: 'INTERNAL', errorId: expect.any(String) },
    }),
  ])
  expect(JSON.stringify(socket.frames)).not.toMatch(/queue|kew|exist/)
  socket.close()
  api.log.length = 0
})

test('a database that is away is UNAVAILABLE and not ready; when it is back, so is the API', async () => {
  const folder = await mkdtemp(`${tmpdir()}/coppice-away-`)
  let database = await startEmbeddedServer({ dataDir: folder, durable: false })
  const logger = silent()
  const engine = createEngine({ connectionString: database.connectionString, logger })
  await engine.start()
  const server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger })
  const ask = async () => {
    const answer = await fetch(`${server.url}/graphql`, {
      method: 'POST',
      headers: JSON_TYPE,
      body: JSON.stringify({ query: '{ jobs { nodes { id } } }' }),
    })
    return (await answer.json()) as { data: object | null; errors?: { extensions: object }[] }
  }
  try {
    expect(await ask()).toEqual({ data: { jobs: { nodes: [] } } })
    const { port } = database
    await database.stop()
    expect((await ask()).errors?.[0]?.extensions).toEqual({ code: 'UNAVAILABLE' })
    expect((await fetch(`${server.url}/readyz`)).status).toBe(503)
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200)
    database = await startEmbeddedServer({ dataDir: folder, durable: false, port })
    await until(async () => (await ask()).data, { what: 'an answer from the database that is back' })
    await until(async () => (await fetch(`${server.url}/readyz`)).status === 200, { timeout: 20_000, what: 'ready' })
  } finally {
    await server.stop()
    await engine.stop({ grace: 0 })
    await database.stop()
    await removeEmbeddedData(folder)
    await rm(folder, { recursive: true, force: true })
  }
})
