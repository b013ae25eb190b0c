import { ANONYMOUS, UnauthenticatedError } from '../../resolvers/viewer.ts'
import type { ApiKeyEntry } from '../../settings/api-key.ts'
import { createApiKeyCheck } from './api-keys.ts'
import type { Session } from './session.ts'
import { createTokenCheck, type TokenOptions } from './tokens.ts'

/** How callers are known; with neither keys nor tokens, nobody is asked. */
export interface AuthOptions {
  readonly apiKeys?: readonly ApiKeyEntry[] | undefined
  readonly tokens?: TokenOptions | undefined
}

/** Knows callers by what they show. */
export interface Authenticator {
  /** Whether callers have to show anything. */
  readonly required: boolean
  /**
   * Who shows this key or token.
   *
   * @throws {UnauthenticatedError} nothing was shown, or nothing valid
   */
  authenticate(credential: string | undefined): Promise<Session>
}

/** Far longer than any key, and than any token that fits into headers. */
const MAX_CREDENTIAL_LENGTH = 16_384

/** Makes what knows callers. */
export function createAuthenticator({ apiKeys = [], tokens }: AuthOptions): Authenticator {
  if (apiKeys.length === 0 && !tokens) return { required: false, authenticate: async () => ({ viewer: ANONYMOUS }) }
  const viewerOfKey = createApiKeyCheck(apiKeys)
  const sessionOfToken = tokens && createTokenCheck(tokens)
  return {
    required: true,
    async authenticate(credential) {
      if (credential === undefined || credential === '') {
        throw new UnauthenticatedError('This needs a key or a token: Authorization: Bearer …')
      }
      if (credential.length > MAX_CREDENTIAL_LENGTH) throw new UnauthenticatedError('The key or token is too long.')
      if (sessionOfToken && isToken(credential)) return sessionOfToken(credential)
      const viewer = viewerOfKey(credential)
      if (!viewer) throw new UnauthenticatedError('The key or token is not valid.')
      return { viewer }
    },
  }
}

/** Tokens are three words with dots between them; keys have no dots. */
function isToken(credential: string): boolean {
  return credential.split('.').length === 3
}

/** The credential in an Authorization header; empty, which nobody has, if it is of another kind than Bearer. */
export function bearerOf(header: unknown): string | undefined {
  if (typeof header !== 'string' || header.trim() === '') return undefined
  return /^Bearer +(\S+)$/i.exec(header.trim())?.[1] ?? ''
}

/** What a `connection_init` shows: a field `Authorization` as over HTTP, or the bare key or token as `token`. */
export function credentialOf(params: Readonly<Record<string, unknown>> | undefined): string | undefined {
  for (const [name, value] of Object.entries(params ?? {})) {
    if (name.toLowerCase() === 'authorization') return bearerOf(value) ?? ''
  }
  const token = params?.token
  return token === undefined || token === null ? undefined : typeof token === 'string' ? token : ''
}
