import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError } from '../src/index.ts'

/**
 * Crawls HTML pages in a folder by their links. Each page is a parent whose children are the pages that it links to, with
 * their paths as keys: two links to one page are one visit. `maxDepth` bounds the tree, and a page is not visited again
 * below itself.
 */
export const crawl = declareJob({
  type: 'crawl',
  payload: z.object({
    /** Folder of the site; nothing outside of it is read. */
    site: z.string().min(1),
    /** The page, from there. */
    page: z.string().default('index.html'),
    maxDepth: z.int().min(0).max(30).default(5),
    /** The pages on the way here. */
    above: z.array(z.string()).default([]),
  }),
  result: z.object({
    /** Pages reached from here, this one included, each once. */
    pages: z.array(z.string()),
    visits: z.number(),
    broken: z.array(z.object({ from: z.string(), to: z.string() })),
    /** Links to elsewhere: counted at each visit. */
    external: z.number(),
  }),
  /** Links to elsewhere on this page. */
  checkpoint: z.object({ external: z.number() }),
})

export const crawlJob = defineJob(crawl, {
  async ingest(ctx) {
    const { site, page, maxDepth, above } = ctx.payload
    const links = linksOf(await readFile(path.join(site, page), 'utf8'))
    const pages = links.map((link) => resolveLink(page, link)).filter((link) => link !== null)
    await ctx.save({ external: links.length - pages.length })
    const way = [...above, page]
    const next = maxDepth === 0 ? [] : pages.filter((link) => !way.includes(link))
    await ctx.spawn(
      next.map((link) => crawl.with({ site, page: link, maxDepth: maxDepth - 1, above: way }, { key: link })),
    )
  },
  async aggregate(ctx) {
    const { page } = ctx.payload
    const pages = new Set([page])
    const broken = new Map<string, { from: string; to: string }>()
    const note = (link: { from: string; to: string }) => broken.set(`${link.from}\n${link.to}`, link)
    let visits = 1
    let external = ctx.saved?.external ?? 0
    for await (const child of ctx.children(crawl)) {
      if (child.state === 'completed') {
        for (const one of child.result.pages) pages.add(one)
        for (const link of child.result.broken) note(link)
        visits += child.result.visits
        external += child.result.external
      } else if (child.state === 'failed' && UNREADABLE.includes(child.error.code)) note({ from: page, to: child.key! })
      else throw new PermanentError(`${child.key} was not read`, { code: 'CHILD_FAILED' })
    }
    const byLink = [...broken.values()].sort((a, b) => (`${a.from} ${a.to}` < `${b.from} ${b.to}` ? -1 : 1))
    return { pages: [...pages].sort(), visits, broken: byLink, external }
  },
})

/** What a page that is not there, or is none, fails with. */
const UNREADABLE: readonly string[] = ['NOT_FOUND', 'VALIDATION']

/** The targets of a page's `<a href>`, comments left out. */
function linksOf(html: string): string[] {
  const links = html.replaceAll(/<!--[\s\S]*?-->/g, '').matchAll(/<a\s[^>]*?href\s*=\s*(?:"([^"]*)"|'([^']*)')/gi)
  return [...links].map(([, double, single]) => (double ?? single)!.replaceAll('&amp;', '&'))
}

/** A link of a page as the path of another in the site; null if it leads elsewhere. */
function resolveLink(page: string, link: string): string | null {
  // A site of its own, so that paths are resolved as browsers do, and never lead out of the folder.
  const base = new URL(page.split('/').map(encodeURIComponent).join('/'), 'http://site.invalid/')
  const url = URL.canParse(link, base) ? new URL(link, base) : null
  if (url?.origin !== base.origin) return null
  const target = path.posix.normalize(decoded(url.pathname)).replace(/^\/+/, '')
  if (target.startsWith('..')) return null
  return target === '' || target.endsWith('/') ? `${target}index.html` : target
}

/** A path as it is on disk; as it is written where that is no encoding of any. */
function decoded(pathname: string): string {
  try {
    return decodeURIComponent(pathname)
  } catch {
    return pathname
  }
}
