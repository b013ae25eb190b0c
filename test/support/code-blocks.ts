import { readFile, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'

const ROOT = path.resolve(import.meta.dirname, '../..')

/** What users import, and where it is here. */
const OWN: Record<string, string> = {
  coppice: 'src/index.ts',
  'coppice/client': 'src/client/index.ts',
  'coppice/testing': 'src/testing/index.ts',
}

/** A program in a page: a block of TypeScript that begins with the name of its file, as a comment. */
export interface CodeBlock {
  name: string
  code: string
}

/** The TypeScript blocks of a page of `docs/`. */
export async function codeBlocksOf(page: string): Promise<CodeBlock[]> {
  const text = await readFile(path.join(ROOT, 'docs', page), 'utf8')
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code = '']) => {
    const name = /^\/\/ (\S+\.ts)\n/.exec(code)?.[1]
    if (name === undefined) throw new Error(`A block of ${page} does not name its file:\n${code}`)
    return { name, code }
  })
}

/** Writes the blocks into a folder, so that they run there: packages are found from here, and this one is its source. */
export async function writeCodeBlocks(blocks: readonly CodeBlock[], folder: string): Promise<string[]> {
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await writeFile(path.join(folder, 'package.json'), '{ "type": "module" }')
  return Promise.all(
    blocks.map(async ({ name, code }) => {
      const file = path.join(folder, name)
      await writeFile(
        file,
        code.replace(/(\bfrom )'([^']+)'/g, (_, from, to) => `${from}'${located(to)}'`),
      )
      return file
    }),
  )
}

function located(specifier: string): string {
  const own = OWN[specifier]
  return own === undefined ? specifier : path.join(ROOT, own)
}
