import { type DocumentNode, GraphQLError, getOperationAST } from 'graphql'
import type { ServerOptions, SubscribePayload } from 'graphql-ws'
import { type Authenticator, bearerOf, credentialOf } from './auth/authenticator.ts'
import type { Session } from './auth/session.ts'
import { type ErrorMask, placeOf } from './error-mask.ts'
import type { Connection } from './websocket-connection.ts'
import type { Yoga } from './yoga.ts'

type Options = ServerOptions<Record<string, unknown>, Connection>

/** What operations of sockets are run with. */
export interface ExecuteOptions {
  yoga: Yoga
  mask: ErrorMask
  authenticator: Authenticator
}

/** What the hooks hand on to `execute` and `subscribe`. */
interface ExecuteArgs {
  execute(args: unknown): unknown
  subscribe(args: unknown): unknown
}

/**
 * How graphql-ws runs operations: by Yoga, with the same plugins as over HTTP. Nothing here ever throws: an error would
 * close the socket, with every other operation on it.
 */
export function executeOptions({ yoga, mask, authenticator }: ExecuteOptions): Options {
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
    async onConnect({ extra, subscriptions, connectionParams }) {
      const credential = credentialOf(connectionParams) ?? bearerOf(extra.authorization)
      try {
        extra.begin(await authenticator.authenticate(credential), subscriptions)
        return true
      } catch (error) {
        extra.refuse(mask(error))
        return false
      }
    },
    async onSubscribe({ extra, subscriptions }, id, payload) {
      try {
        extra.count.admitAny(subscriptions)
        const prepared = await prepare(yoga, payload, extra.session!, mask)
        if (Array.isArray(prepared)) return prepared
        const operation = getOperationAST(prepared.document, prepared.operationName)
        if (operation) extra.count.admit(id, operation.operation, subscriptions)
        return prepared
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
async function prepare(yoga: Yoga, payload: SubscribePayload, session: Session, mask: ErrorMask) {
  const enveloped = yoga.getEnveloped({ params: payload, session })
  const document: DocumentNode = enveloped.parse(payload.query)
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
