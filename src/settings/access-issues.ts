import type { ConfigIssue } from './setting.ts'

/** The settings of tokens, as far as they depend on one another. */
interface TokenSettings {
  readonly jwtSecret: string | undefined
  readonly jwtPublicKey: string | undefined
  readonly jwtJwksUrl: string | undefined
  readonly jwtIssuer: string | undefined
  readonly jwtAudience: string | undefined
}

/** What is wrong with settings of tokens that are right each by itself. */
export function accessIssues(config: TokenSettings): ConfigIssue[] {
  const { jwtSecret, jwtPublicKey, jwtJwksUrl, jwtIssuer, jwtAudience } = config
  const issues: ConfigIssue[] = []
  if (jwtPublicKey !== undefined && jwtJwksUrl !== undefined) {
    issues.push({
      source: 'COPPICE_JWT_PUBLIC_KEY',
      given: 'set',
      expected: 'nothing when COPPICE_JWT_JWKS_URL is set',
    })
  }
  const named = [
    ['COPPICE_JWT_ISSUER', jwtIssuer],
    ['COPPICE_JWT_AUDIENCE', jwtAudience],
  ] as const
  for (const [source, value] of named) {
    if (jwtJwksUrl !== undefined && value === undefined) {
      // Whoever publishes keys signs tokens for many programs with them.
      issues.push({ source, given: 'not set', expected: 'a value when COPPICE_JWT_JWKS_URL is set' })
    }
    if (value !== undefined && (jwtSecret ?? jwtPublicKey ?? jwtJwksUrl) === undefined) {
      issues.push({ source, given: 'set', expected: 'a COPPICE_JWT_SECRET, _PUBLIC_KEY or _JWKS_URL beside it' })
    }
  }
  return issues
}
