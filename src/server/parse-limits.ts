import { GraphQLError } from 'graphql'
import type { Plugin } from 'graphql-yoga'

/** Most tokens of a document: far more than people write, far less than what validating keeps a processor busy with. */
export const MAX_TOKENS = 5000

/** A request that asks for more than is allowed: a top-level error. */
export class LimitExceededError extends Error {
  readonly code = 'LIMIT_EXCEEDED'
}

/** Refuses documents that are too long or too deep to be parsed, over every transport. */
export function useParseLimits(): Plugin {
  return {
    onParse({ parseFn, setParseFn }) {
      setParseFn((source, options) => {
        try {
          return parseFn(source, { ...options, maxTokens: MAX_TOKENS })
        } catch (error) {
          if (error instanceof RangeError) throw new LimitExceededError('The document is nested too deeply.')
          if (error instanceof GraphQLError && error.message.includes(`more that ${MAX_TOKENS} tokens`)) {
            throw new LimitExceededError(`The document has more than ${MAX_TOKENS} tokens. Use variables.`)
          }
          throw error
        }
      })
    },
  }
}
