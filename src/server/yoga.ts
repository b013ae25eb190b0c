import { useCSRFPrevention } from '@graphql-yoga/plugin-csrf-prevention'
import type { GraphQLError } from 'graphql'
import { createYoga, isAsyncIterable, type Plugin, type YogaServerInstance } from 'graphql-yoga'
import type { ApiEngine } from '../resolvers/api-engine.ts'
import type { Context } from '../resolvers/context.ts'
import { ANONYMOUS } from '../resolvers/viewer.ts'
import { schema } from '../schema/index.ts'
import type { ErrorMask } from './error-mask.ts'
import { DEFAULT_QUERY, graphiqlPage } from './graphiql.ts'
import { useParseLimits } from './parse-limits.ts'

/** Where the API is. */
export const GRAPHQL_PATH = '/graphql'

/** Largest body of a request, and largest frame on a WebSocket, in bytes. */
export const MAX_REQUEST_BYTES = 256 * 1024

/** A header that only scripts of this origin can set; it lets requests pass that are not JSON. */
export const CSRF_HEADER = 'x-coppice-csrf'

/** What the GraphQL server is made of. */
export interface YogaOptions {
  engine: ApiEngine
  mask: ErrorMask
  /** Aborted when the server begins to stop. */
  closing: AbortSignal
}

/** The GraphQL server over HTTP and SSE, and what the WebSocket side executes with. */
export type Yoga = YogaServerInstance<object, Context>

/** Makes the GraphQL server: closed CORS, CSRF prevention, no multipart, no batches, masked errors, GraphiQL offline. */
export function makeYoga({ engine, mask, closing }: YogaOptions): Yoga {
  return createYoga<object, Context>({
    schema,
    graphqlEndpoint: GRAPHQL_PATH,
    context: (): Context => ({ engine, viewer: ANONYMOUS, closing }),
    cors: false,
    multipart: false,
    batching: false,
    landingPage: false,
    maxRequestBodySize: MAX_REQUEST_BYTES,
    // What is to be logged, the mask logs.
    logging: false,
    maskedErrors: { maskError: mask },
    // By POST, since subscriptions by GET would be refused like those of any page of another site.
    graphiql: { title: 'Coppice', defaultQuery: DEFAULT_QUERY, subscriptionsProtocol: 'SSE', method: 'POST' },
    renderGraphiQL: graphiqlPage,
    plugins: [
      useCSRFPrevention({ requestHeaders: [CSRF_HEADER, 'x-graphql-yoga-csrf'] }),
      useParseLimits(),
      maskResults(mask),
    ],
  })
}

/** Errors of validation never reach Yoga's own masking: here they get their codes. */
function maskResults(mask: ErrorMask): Plugin {
  return {
    onExecutionResult({ result, setResult }) {
      if (!result || isAsyncIterable(result) || Array.isArray(result)) return
      const { errors } = result as { errors?: readonly GraphQLError[] }
      if (errors) setResult({ ...result, errors: errors.map(mask) })
    },
  }
}
