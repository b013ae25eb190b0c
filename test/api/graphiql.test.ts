import chromium from '@sparticuz/chromium'
import { type Browser, type Page, chromium as playwright } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { hashApiKey, makeApiKey } from '../../src/server/auth/api-keys.ts'
import { createServer } from '../../src/server/server.ts'
import { type Api, silent, startApi } from './api.ts'

// In a real browser, which is offline but for the server.

const KEY = makeApiKey()
const apiKeys = [{ name: 'ann', role: 'operator' as const, hash: hashApiKey(KEY) }]

let api: Api
let browser: Browser
beforeAll(async () => {
  api = await startApi()
  // The arguments that come with it are for another place: without web security, in one process.
  const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage']
  browser = await playwright.launch({ executablePath: await chromium.executablePath(), args })
}, 120_000)
afterAll(async () => {
  await browser?.close()
  await api.stop()
})

/** Opens GraphiQL with a document in it; everything that is not of the server fails, and is told. */
async function open(url: string, query: string): Promise<{ page: Page; foreign: string[] }> {
  const page = await browser.newPage()
  const foreign: string[] = []
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !/^(blob|data):/.test(request.url())) foreign.push(request.url())
  })
  await page.goto(`${url}/graphql?query=${encodeURIComponent(query)}`)
  return { page, foreign }
}

async function execute(page: Page): Promise<void> {
  await page.locator('.graphiql-execute-button').click()
}

async function answered(page: Page, text: string): Promise<void> {
  await page.waitForFunction(
    (expected) =>
      (document.querySelector('.result-window')?.textContent ?? '').replaceAll('\u00a0', ' ').includes(expected),
    text,
    { timeout: 20_000 },
  )
}

const ENQUEUE = 'mutation { enqueueJob(input: { type: "browser" }) { ... on EnqueueJobSuccess { job { state } } } }'
const EVENTS = 'subscription { jobEvents { events { type kind } } }'

test('GraphiQL queries, enqueues and subscribes, offline', { timeout: 120_000 }, async () => {
  for (const [query, text] of [
    ['{ viewer { name role } }', '"anonymous"'],
    [ENQUEUE, '"QUEUED"'],
  ] as const) {
    const { page, foreign } = await open(api.server.url, query)
    await execute(page)
    await answered(page, text)
    expect(await page.locator('#coppice-token').count()).toBe(0)
    expect(foreign).toEqual([])
    await page.close()
  }
  const { page } = await open(api.server.url, EVENTS)
  await execute(page)
  await answered(page, '"events": []')
  await api.engine.enqueueMany([{ type: 'seen-live' }])
  await answered(page, '"seen-live"')
  await page.close()
})

test('where keys are set up GraphiQL asks for one, and uses it for everything', { timeout: 120_000 }, async () => {
  const config = { host: '127.0.0.1', port: 0 }
  const server = await createServer({ engine: api.engine, config, logger: silent(), auth: { apiKeys } })
  const { page, foreign } = await open(server.url, '{ viewer { name role } }')
  const input = page.locator('#coppice-token input')
  await input.fill('coppice_wrong')
  await input.press('Enter')
  await page.locator('#coppice-token-why', { hasText: 'The key or token is not valid.' }).waitFor()
  await page.locator('#coppice-token input').fill(`Bearer ${KEY}`)
  await page.locator('#coppice-token button').click()
  await page.locator('#coppice-token').waitFor({ state: 'detached' })
  await execute(page)
  await answered(page, '"ann"')

  // The tab keeps it: nothing is asked again.
  await page.goto(`${server.url}/graphql?query=${encodeURIComponent(EVENTS)}`)
  await execute(page)
  await answered(page, '"events": []')
  expect(await page.locator('#coppice-token').count()).toBe(0)
  await api.engine.enqueueMany([{ type: 'seen-with-key' }])
  await answered(page, '"seen-with-key"')
  expect(foreign).toEqual([])
  await page.close()
  await server.stop()
})
