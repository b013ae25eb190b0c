import { type DocumentNode, GraphQLError, visit } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { LimitExceededError, type Limits } from './limits.ts'

/** Refuses documents that are too long or too deep to be parsed, or have too many aliases, over every transport. */
export function useParseLimits({ maxTokens, maxAliases }: Limits): Plugin {
  return {
    onParse({ parseFn, setParseFn }) {
      setParseFn((source, options) => {
        try {
          const document: DocumentNode = parseFn(source, { ...options, maxTokens })
          checkAliases(document, maxAliases)
          return document
        } catch (error) {
          if (error instanceof RangeError) throw new LimitExceededError('depth', 'The document is nested too deeply.')
          if (error instanceof GraphQLError && error.message.includes(`more that ${maxTokens} tokens`)) {
            throw new LimitExceededError('tokens', `The document has more than ${maxTokens} tokens. Use variables.`)
          }
          throw error
        }
      })
    },
  }
}

function checkAliases(document: DocumentNode, most: number): void {
  let count = 0
  visit(document, {
    Field({ alias }) {
      if (alias && ++count > most) {
        throw new LimitExceededError('aliases', `The document has more than ${most} aliases.`)
      }
    },
  })
}
