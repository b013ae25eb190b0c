import type { Config } from '../config.ts'
import type { ServerOptions } from '../server/server.ts'

/** What settings make of the API's server. */
export function serverOptions(config: Config): Pick<ServerOptions, 'config' | 'auth' | 'limits' | 'corsOrigins'> {
  const { apiKeys, corsOrigins, jwtSecret: secret, jwtPublicKey: publicKey, jwtJwksUrl: jwksUrl } = config
  const tokens = { secret, publicKey, jwksUrl, issuer: config.jwtIssuer, audience: config.jwtAudience }
  const withTokens = (secret ?? publicKey ?? jwksUrl) !== undefined
  return {
    config,
    auth: { apiKeys, ...(withTokens && { tokens: { ...tokens, roleClaim: config.jwtRoleClaim } }) },
    limits: config,
    corsOrigins,
  }
}
