import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { crawl } from '../../examples/crawl.ts'
import { useExamples } from './use-examples.ts'

describe('crawl', { timeout: 120_000 }, () => {
  const examples = useExamples()
  let site: string
  beforeAll(async () => {
    site = await mkdtemp(path.join(os.tmpdir(), 'coppice-crawl-'))
    await mkdir(path.join(site, 'docs', 'deep'), { recursive: true })
    const pages: Record<string, string> = {
      'index.html': `<a href="a.html">A</a> <a class="x" href='b.html#top'>B</a> <a href="/docs/">Docs</a>
        <a href="a.html?again">A again</a> <a href="https://example.com/">elsewhere</a> <a href="mailto:me@example.com">me</a>
        <!-- <a href="hidden.html">hidden</a> --> <link href="style.css">`,
      'a.html': '<a href="index.html">home</a> <a href="b.html">B</a> <a href="gone.html">gone</a>',
      'b.html': '<A HREF="a.html">A</A> <a href="../../etc/passwd">out</a> <a href="docs">a folder</a>',
      'docs/index.html': '<a href="deep/one%20page.html">deep</a> <a href="../a.html">A</a> <a href="%zz.html">bad</a>',
      'docs/deep/one page.html': '<a href="two.html">two</a>',
      'docs/deep/two.html': '<p>The end',
      'hidden.html': 'never linked',
    }
    for (const [name, html] of Object.entries(pages)) await writeFile(path.join(site, name), html)
  })
  afterAll(() => rm(site, { recursive: true, force: true }))

  async function visit(payload: Omit<Parameters<typeof crawl.with>[0], 'site'> = {}) {
    const handle = await examples.engine.enqueue(crawl.with({ site, ...payload }))
    const end = await examples.engine.waitFor(handle, { timeoutMs: 100_000 })
    if (end.state !== 'completed') throw new Error(JSON.stringify(end))
    return { ...end.result, id: handle.id }
  }

  test('finds every page that can be reached, and every broken link', async () => {
    const { pages, broken } = await visit()
    expect(pages).toEqual([
      'a.html',
      'b.html',
      'docs/deep/one page.html',
      'docs/deep/two.html',
      'docs/index.html',
      'index.html',
    ])
    expect(broken).toEqual([
      { from: 'a.html', to: 'gone.html' },
      { from: 'b.html', to: 'docs' },
      { from: 'b.html', to: 'etc/passwd' },
      { from: 'docs/index.html', to: 'docs/%zz.html' },
    ])
  })

  test('visits no page twice for one parent, nor below itself', async () => {
    const { visits, external, id } = await visit()
    const { rows } = await examples.test.pool.query<{
      payload: { page: string; above: string[] }
      key: string
      parent_id: string
    }>(`select payload, key, parent_id from ${examples.test.schema}.job where tree_id = $1 and parent_id is not null`, [
      id,
    ])
    expect(new Set(rows.map((row) => `${row.parent_id} ${row.key}`)).size).toBe(rows.length)
    for (const { payload } of rows) expect(payload.above).not.toContain(payload.page)
    // index; a, b below it; b, a below it; docs, deep, two below it; a, b below docs.
    expect(visits).toBe(10)
    expect(external).toBe(2)
  })

  test('goes no deeper than it may', async () => {
    expect(await visit({ maxDepth: 0 })).toMatchObject({ pages: ['index.html'], visits: 1, broken: [] })
    const { pages } = await visit({ maxDepth: 1 })
    expect(pages).toEqual(['a.html', 'b.html', 'docs/index.html', 'index.html'])
    const { pages: deeper } = await visit({ maxDepth: 2 })
    expect(deeper).toContain('docs/deep/one page.html')
    expect(deeper).not.toContain('docs/deep/two.html')
  })

  test('a first page that is not there is an error', async () => {
    const handle = await examples.engine.enqueue(crawl.with({ site, page: 'nowhere.html' }))
    expect(await examples.engine.waitFor(handle)).toMatchObject({ state: 'failed', errorCode: 'NOT_FOUND' })
  })
})
