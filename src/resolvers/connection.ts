import type { Edge, Page } from '../engine/reads/page.ts'

/** A page in the shape of Relay's connections. */
export interface Connection<T> {
  edges: Edge<T>[]
  pageInfo: {
    hasNextPage: boolean
    hasPreviousPage: boolean
    startCursor: string | null
    endCursor: string | null
  }
}

/** A page as a connection. */
export function connectionOf<T>({ edges, hasNextPage, hasPreviousPage }: Page<T>): Connection<T> {
  return {
    edges,
    pageInfo: {
      hasNextPage,
      hasPreviousPage,
      startCursor: edges[0]?.cursor ?? null,
      endCursor: edges.at(-1)?.cursor ?? null,
    },
  }
}
