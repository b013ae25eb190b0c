import { useCSRFPrevention } from '@graphql-yoga/plugin-csrf-prevention'
import type { DocumentNode, GraphQLError } from 'graphql'
import { type CORSOptions, createYoga, isAsyncIterable, type Plugin, type YogaServerInstance } from 'graphql-yoga'
import type { ApiEngine } from '../resolvers/api-engine.ts'
import type { Context } from '../resolvers/context.ts'
import { schema } from '../schema/index.ts'
import type { Caller } from './caller.ts'
import type { ErrorMask } from './error-mask.ts'
import { useExecutionLimits } from './execution-limits.ts'
import { DEFAULT_QUERY, graphiqlPage } from './graphiql.ts'
import type { Limits } from './limits.ts'
import { useParseLimits } from './parse-limits.ts'
import { TextCache } from './text-cache.ts'

/** Where the API is. */
export const GRAPHQL_PATH = '/graphql'

/** Characters of documents, and of wrong ones, that are kept parsed. */
const MAX_CACHED_LENGTH = 256 * 1024

/** A header that only scripts of this origin can set; it lets requests pass that are not JSON. */
export const CSRF_HEADER = 'x-coppice-csrf'

/** What the GraphQL server is made of. */
export interface YogaOptions {
  engine: ApiEngine
  mask: ErrorMask
  limits: Limits
  /** Origins of web pages that may read answers, beside this server's own. */
  corsOrigins: readonly string[]
  /** Whether callers must show a key or a token: GraphiQL asks for one then. */
  authRequired: boolean
  /** Aborted when the server begins to stop. */
  closing: AbortSignal
}

/** The GraphQL server over HTTP and SSE, and what the WebSocket side executes with. */
export type Yoga = YogaServerInstance<Caller, Context>

/** Makes the GraphQL server: closed CORS, CSRF prevention, no multipart, no batches, masked errors, GraphiQL offline. */
export function makeYoga({ engine, mask, limits, corsOrigins, authRequired, closing }: YogaOptions): Yoga {
  return createYoga<Caller, Context>({
    schema,
    graphqlEndpoint: GRAPHQL_PATH,
    context: ({ session, expired }): Context => ({
      engine,
      viewer: session!.viewer,
      closing,
      ...(expired && { expired }),
    }),
    cors: (request) => corsFor(request.headers.get('origin'), corsOrigins),
    multipart: false,
    batching: false,
    landingPage: false,
    parserAndValidationCache: {
      documentCache: new TextCache<DocumentNode>(MAX_CACHED_LENGTH),
      errorCache: new TextCache<Error>(MAX_CACHED_LENGTH),
    },
    maxRequestBodySize: limits.maxRequestBytes,
    // What is to be logged, the mask logs.
    logging: false,
    maskedErrors: { maskError: mask },
    // By POST, since subscriptions by GET would be refused like those of any page of another site.
    graphiql: { title: 'Coppice', defaultQuery: DEFAULT_QUERY, subscriptionsProtocol: 'SSE', method: 'POST' },
    renderGraphiQL: (options) => graphiqlPage(options, authRequired),
    plugins: [
      useCSRFPrevention({ requestHeaders: [CSRF_HEADER, 'x-graphql-yoga-csrf'] }),
      knowCallers(),
      useParseLimits(limits),
      useExecutionLimits(limits, mask),
      maskResults(mask),
      endUnreadStreams(),
    ],
  })
}

/** Asks who calls before anything of the request is read. */
function knowCallers(): Plugin<object, Caller> {
  return {
    async onRequestParse({ serverContext }) {
      if (!serverContext.session && serverContext.authenticate) {
        serverContext.session = await serverContext.authenticate()
      }
    },
  }
}

/** A subscription that no answer can be made of, since the caller accepts no stream, has begun already: Yoga leaves it. */
function endUnreadStreams(): Plugin {
  return {
    async onResultProcess({ result, resultProcessor }) {
      if (isAsyncIterable(result) && !resultProcessor) await result[Symbol.asyncIterator]().return?.()
    },
  }
}

/** A browser takes an answer for a page of another origin only if it names that very origin. */
function corsFor(origin: string | null, allowed: readonly string[]): CORSOptions {
  if (origin === null || !allowed.includes(origin.toLowerCase())) return false
  return {
    origin: [origin],
    methods: ['POST', 'GET', 'OPTIONS'],
    allowedHeaders: ['authorization', 'content-type', CSRF_HEADER],
    // Nothing here comes with cookies.
    credentials: false,
    maxAge: 600,
  }
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
