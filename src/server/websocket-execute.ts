import { GraphQLError } from 'graphql'
import type { ServerOptions, SubscribePayload } from 'graphql-ws'
import { type ErrorMask, placeOf } from './error-mask.ts'
import type { Connection } from './websocket-connection.ts'
import type { Yoga } from './yoga.ts'

type Options = ServerOptions<Record<string, unknown>, Connection>

/** What the hooks hand on to `execute` and `subscribe`. */
interface ExecuteArgs {
  execute(args: unknown): unknown
  subscribe(args: unknown): unknown
}

/**
 * How graphql-ws runs operations: by Yoga, with the same plugins as over HTTP. Nothing here ever throws: an error would
 * close the socket, with every other operation on it.
 */
export function executeOptions(yoga: Yoga, mask: ErrorMask): Options {
  const run = async (how: 'execute' | 'subscribe', args: unknown) => {
    try {
      return await (args as ExecuteArgs)[how](args)
    } catch (error) {
      return { errors: [mask(error)] }
    }
  }
  const formatted = (error: GraphQLError) => withoutHttp(mask(error)).toJSON()
  return {
    connectionInitWaitTimeout: 10_000,
    onConnect(ctx) {
      ctx.extra.subscriptions = ctx.subscriptions
      return true
    },
    async onSubscribe(_ctx, _id, payload) {
      try {
        return await prepare(yoga, payload, mask)
      } catch (error) {
        return [mask(error)]
      }
    },
    execute: (args) => run('execute', args) as ReturnType<NonNullable<Options['execute']>>,
    subscribe: (args) => run('subscribe', args) as ReturnType<NonNullable<Options['subscribe']>>,
    onError: (_ctx, _id, _payload, errors) => errors.map(formatted),
    onNext: (_ctx, _id, _payload, _args, { data, errors }) =>
      errors ? { errors: errors.map(formatted), ...(data !== undefined && { data }) } : undefined,
  }
}

/** What to execute, or the errors of the document. */
async function prepare(yoga: Yoga, payload: SubscribePayload, mask: ErrorMask) {
  const enveloped = yoga.getEnveloped({ params: payload })
  const document = enveloped.parse(payload.query)
  const errors: readonly GraphQLError[] = enveloped.validate(enveloped.schema, document)
  if (errors.length > 0) return errors.map(mask)
  return {
    schema: enveloped.schema,
    document,
    variableValues: payload.variables ?? {},
    operationName: payload.operationName ?? undefined,
    contextValue: await enveloped.contextFactory(),
    execute: enveloped.execute,
    subscribe: enveloped.subscribe,
  }
}

/** The status line of HTTP is of no interest here. */
function withoutHttp(error: GraphQLError): GraphQLError {
  const { http: _http, ...extensions } = error.extensions
  return new GraphQLError(error.message, { ...placeOf(error), extensions })
}
