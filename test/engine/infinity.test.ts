import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FIRST_INSTANT, instantOf, LAST_INSTANT, later } from '../../src/db/instants.ts'
import { isInstant } from '../../src/engine/reads/cursor.ts'
import { type Api, startApi } from '../api/api.ts'
import { coppiceHere, envOf } from '../cli/run.ts'
import { createReconciler } from '../support/reconciler.ts'
import { createVerbs } from '../support/verbs.ts'

// Timestamps that plain SQL has set to what no Date can hold.

describe('an instant of PostgreSQL', () => {
  it.each([
    ['2026-01-31 08:00:00.123456+00', '2026-01-31T08:00:00.123Z'],
    ['infinity', LAST_INSTANT.toISOString()],
    ['-infinity', FIRST_INSTANT.toISOString()],
    ['10000-01-01 00:00:00+00', LAST_INSTANT.toISOString()],
    ['294276-12-31 23:59:59.999999+00', LAST_INSTANT.toISOString()],
    ['0044-03-15 00:00:00+00 BC', FIRST_INSTANT.toISOString()],
    ['4713-01-01 00:00:00+00 BC', FIRST_INSTANT.toISOString()],
    ['0001-01-01 00:00:00+00', FIRST_INSTANT.toISOString()],
  ])('%s is %s', (text, iso) => {
    expect(instantOf(text).toISOString()).toBe(iso)
  })

  it('is never later than the last', () => {
    expect(later(LAST_INSTANT, 1)).toEqual(LAST_INSTANT)
    expect(later(new Date(0), 5)).toEqual(new Date(5))
  })

  it.each([
    ['infinity', true],
    ['-infinity', true],
    ['20000-02-29T00:00:00.000000Z', true],
    ['0044-03-15T00:00:00.000000Z BC', true],
    ['999999-01-01T00:00:00.000000Z', false],
    ['20000-13-01T00:00:00.000000Z', false],
    ['Infinity', false],
  ])('in a cursor may be %s: %s', (text, valid) => {
    expect(isInstant(text)).toBe(valid)
  })
})

describe.each(['infinity', '-infinity', '20000-01-01', '0044-03-15 BC'])('all timestamps set to %s', (instant) => {
  const shown = instant.startsWith('-') || instant.endsWith('BC') ? FIRST_INSTANT : LAST_INSTANT
  let api: Api
  const ids: Record<string, string> = {}
  beforeAll(async () => {
    api = await startApi({ start: false })
    const { pool } = api.test
    const states = ['queued', 'running', 'waiting', 'due', 'paused', 'completed', 'failed', 'cancelled']
    const timeouts = { wait: '1h', ingest: '1h' }
    for (const state of states) {
      const waits = state === 'waiting' || state === 'due'
      const more = waits ? { children: [{ type: 'a' }] } : {}
      ids[state] = (await api.engine.enqueue({ type: state, timeouts, ...more })).id
      if (!waits) await pool.query('update coppice.job set state = $2 where id = $1', [ids[state], state])
    }
    await pool.query(`update coppice.job set state = 'completed' where parent_id = $1`, [ids.due])
    const { rows } = await pool.query(`select column_name as name from information_schema.columns
      where table_schema = 'coppice' and table_name = 'job' and data_type like 'timestamp%' and column_name <> 'archived_at'`)
    expect(rows.length).toBeGreaterThan(6)
    await pool.query(`update coppice.job set ${rows.map(({ name }) => `${name} = '${instant}'`).join()}`)
  })
  afterAll(() => api.stop())

  it('are shown by the library', async () => {
    for (const [state, id] of Object.entries(ids)) {
      const job = await api.engine.job(id)
      expect([job!.createdAt, job!.runAt, job!.finishedAt]).toEqual([shown, shown, shown])
      const [reason] = await api.engine.explain(id)
      expect([state, reason!.sentence]).toEqual([state, expect.stringMatching(/\S/)])
      expect(() => reason!.nextAt?.toISOString()).not.toThrow()
    }
  })

  it('are shown by the API, page by page', async () => {
    const seen: string[] = []
    for (let after: string | null = null; ; ) {
      const { jobs } = await api.ask(
        `query ($after: String) { jobs(first: 3, after: $after, orderBy: { field: CREATED_AT, direction: ASC }) {
          nodes { id createdAt updatedAt runAt finishedAt explain { sentence nextAt } }
          pageInfo { endCursor hasNextPage } } }`,
        { after },
      )
      for (const { id, createdAt, updatedAt, runAt, finishedAt } of jobs.nodes) {
        seen.push(id)
        expect([createdAt, updatedAt, runAt, finishedAt]).toEqual(Array(4).fill(shown.toISOString()))
      }
      if (!jobs.pageInfo.hasNextPage) break
      after = jobs.pageInfo.endCursor
    }
    expect(new Set(seen).size).toBe(8 + 2)
    for (let after: string | null = null, pages = 0; pages < 3; pages++) {
      const { stuckParents } = await api.ask(
        `query ($after: String) { stuckParents(first: 1, after: $after) { nodes { id } pageInfo { endCursor } } }`,
        { after },
      )
      expect(stuckParents.nodes).toEqual(pages === 0 ? [{ id: `JB_${ids.due}` }] : [])
      after = stuckParents.pageInfo.endCursor ?? after
    }
  })

  it('are shown by the command line', async () => {
    for (const [state, id] of Object.entries(ids)) {
      for (const args of [
        ['explain', id],
        ['explain', id, '--json'],
        ['tree', id],
        ['tree', id, '--json'],
      ]) {
        const ended = await coppiceHere(
          args.map((arg) => (arg === id ? `JB_${id}` : arg)),
          envOf(api.test),
        )
        expect([state, args[0], ended.stderr, ended.code]).toEqual([state, args[0], '', 0])
      }
    }
  })

  it('keep no wake back', async () => {
    const v = await createVerbs()
    try {
      const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
      await v.test.pool.query('alter table coppice.job disable trigger user')
      await v.test.pool.query(`update coppice.job set state = 'completed' where parent_id = $1`, [id])
      await v.test.pool.query('update coppice.job set waiting_since = $1', [instant])
      const reconciler = createReconciler(v.db)
      await reconciler.tick()
      expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
      const [oldest] = (await reconciler.metrics.oldestWaiting.get()).values
      expect(Number.isFinite(oldest!.value)).toBe(true)
    } finally {
      await v.close()
    }
  })
})
