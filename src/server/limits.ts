import { LIMIT_SETTINGS } from '../settings/limits.ts'

/** How much one caller may ask for; durations in milliseconds. */
export type Limits = { readonly [S in (typeof LIMIT_SETTINGS)[number] as S['name']]: number }

/** The limits of a server that was told nothing else. */
export const DEFAULT_LIMITS = Object.fromEntries(
  LIMIT_SETTINGS.map((setting) => [setting.name, setting.parser.parse(setting.default)]),
) as Limits

/** Which limit a request was refused for. */
export type Limit =
  | 'aliases'
  | 'connections'
  | 'cost'
  | 'depth'
  | 'operations'
  | 'size'
  | 'subscriptions'
  | 'time'
  | 'tokens'

/** A request that asks for more than is allowed: a top-level error. */
export class LimitExceededError extends Error {
  readonly code = 'LIMIT_EXCEEDED'
  readonly limit: Limit

  constructor(limit: Limit, message: string) {
    super(message)
    this.name = 'LimitExceededError'
    this.limit = limit
  }
}
