import fc from 'fast-check'
import { expect } from 'vitest'

// What a connection answers must be what slicing a plain list gives.

export interface Connection {
  edges: { cursor: string; node: { id: string } }[]
  nodes: { id: string }[]
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null }
}

export const PAGE =
  'edges { cursor node { id } } nodes { id } pageInfo { hasNextPage hasPreviousPage startCursor endCursor }'
export const ARGS = 'first: $first, after: $after, last: $last, before: $before'
export const DECLARED = '$first: Int, $after: String, $last: Int, $before: String'

export const argsArbitrary = fc.record({
  size: fc.integer({ min: 1, max: 14 }),
  backwards: fc.boolean(),
  after: fc.option(fc.nat(), { nil: undefined }),
  before: fc.option(fc.nat(), { nil: undefined }),
})
export type Args = typeof argsArbitrary extends fc.Arbitrary<infer T> ? T : never

/** What a list answers to page arguments, by slicing. */
function model(list: readonly string[], args: Args, cursors: readonly string[]) {
  const pick = (n: number | undefined) => (n === undefined || list.length === 0 ? undefined : n % list.length)
  const [after, before] = [pick(args.after), pick(args.before)]
  const from = after === undefined ? 0 : after + 1
  const to = before === undefined ? list.length : before
  const range = from < to ? list.slice(from, to) : []
  const ids = args.backwards ? range.slice(-args.size) : range.slice(0, args.size)
  return {
    ids,
    variables: {
      ...(args.backwards ? { last: args.size } : { first: args.size }),
      ...(after !== undefined && { after: cursors[after] }),
      ...(before !== undefined && { before: cursors[before] }),
    },
    // Where the page is empty there is no edge for anything to be before or after.
    hasNextPage: ids.length > 0 ? list.indexOf(ids.at(-1)!) < list.length - 1 : undefined,
    hasPreviousPage: ids.length > 0 ? list.indexOf(ids[0]!) > 0 : undefined,
  }
}

/** Checks one connection: its whole list, then the page that the arguments ask for. */
export async function check(
  list: readonly string[],
  args: Args,
  ask: (variables: Record<string, unknown>) => Promise<Connection>,
): Promise<void> {
  const whole = await ask({ first: 100 })
  expect(whole.nodes.map((node) => node.id)).toEqual(list)
  const expected = model(
    list,
    args,
    whole.edges.map((edge) => edge.cursor),
  )
  const page = await ask(expected.variables)
  expect(page.nodes.map((node) => node.id)).toEqual(expected.ids)
  expect(page.edges.map((edge) => edge.node.id)).toEqual(expected.ids)
  expect(page.pageInfo.startCursor).toBe(page.edges[0]?.cursor ?? null)
  expect(page.pageInfo.endCursor).toBe(page.edges.at(-1)?.cursor ?? null)
  if (expected.ids.length > 0) {
    expect(page.pageInfo.hasNextPage).toBe(expected.hasNextPage)
    expect(page.pageInfo.hasPreviousPage).toBe(expected.hasPreviousPage)
  }
}
