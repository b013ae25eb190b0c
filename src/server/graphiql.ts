import { renderGraphiQL } from '@graphql-yoga/render-graphiql'
import { TOKEN_DIALOG } from './graphiql-token.ts'

/** What GraphiQL opens with. */
export const DEFAULT_QUERY = `# Enqueue a tree, look at it, and watch it live.
# Ctrl-Space completes, Ctrl-Enter runs.

query Look {
  viewer { name role }
  jobs(filter: { roots: true }, first: 10) {
    nodes {
      id type state createdAt
      childCounts { total open completed }
    }
  }
}

mutation Start {
  enqueueJob(input: {
    type: "word-count"
    payload: { path: "README.md" }
  }) {
    ... on EnqueueJobSuccess {
      job { id state } deduplicated
    }
    ... on ValidationError {
      issues { path message }
    }
  }
}

subscription Watch {
  jobEvents {
    events { at kind jobId type from to }
    cursor caughtUp ended
  }
}
`

let page: string | undefined

/**
 * The page, whole: scripts, styles and fonts are in it. Made once, since it is megabytes.
 *
 * @param withToken whether it asks for a key or a token before it asks the API anything.
 */
export function graphiqlPage(options: Parameters<typeof renderGraphiQL>[0], withToken: boolean): string {
  page ??= renderGraphiQL(options)
  return withToken ? page.replace('</head>', () => `${TOKEN_DIALOG}</head>`) : page
}
