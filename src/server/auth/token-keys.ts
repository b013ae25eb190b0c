import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto'
import { createRemoteJWKSet, errors, type JWTHeaderParameters, type JWTVerifyGetKey } from 'jose'
import { KeysUnavailableError } from './errors.ts'

/** Where the keys that tokens are checked with come from: a secret, and public keys from one of two places. */
export interface TokenKeyOptions {
  readonly secret?: string | undefined
  /** In PEM form. */
  readonly publicKey?: string | undefined
  readonly jwksUrl?: string | undefined
}

/** The keys, and the algorithms that they are for: no other is tried, whatever a token says of itself. */
export interface TokenKeys {
  readonly algorithms: readonly string[]
  readonly find: JWTVerifyGetKey
}

const SECRET_ALGORITHMS = ['HS256', 'HS384', 'HS512']
const RSA_ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512']
const CURVE_ALGORITHMS: Readonly<Record<string, string>> = {
  prime256v1: 'ES256',
  secp384r1: 'ES384',
  secp521r1: 'ES512',
}
const EDWARDS_ALGORITHMS = ['EdDSA', 'Ed25519']

/**
 * A secret is for HMAC only and a public key for signatures of its own kind only, so that no token is checked with a
 * public key as if that were a secret.
 */
export function tokenKeys({ secret, publicKey, jwksUrl }: TokenKeyOptions): TokenKeys {
  const shared = secret === undefined ? undefined : createSecretKey(Buffer.from(secret))
  const open = publicKeys(publicKey, jwksUrl)
  return {
    algorithms: [...(shared ? SECRET_ALGORITHMS : []), ...(open?.algorithms ?? [])],
    async find(header, token) {
      const key = isSecretAlgorithm(header) ? shared : await open?.find(header, token)
      if (!key) throw new errors.JOSEAlgNotAllowed('no key for this algorithm')
      return key
    },
  }
}

function isSecretAlgorithm(header: JWTHeaderParameters): boolean {
  return SECRET_ALGORITHMS.includes(header.alg)
}

function publicKeys(publicKey: string | undefined, jwksUrl: string | undefined): TokenKeys | undefined {
  if (publicKey !== undefined) {
    const key = createPublicKey(publicKey)
    return { algorithms: algorithmsOf(key), find: async () => key }
  }
  if (jwksUrl === undefined) return undefined
  const find = createRemoteJWKSet(new URL(jwksUrl), { timeoutDuration: 5000 })
  return {
    algorithms: [...RSA_ALGORITHMS, ...Object.values(CURVE_ALGORITHMS), ...EDWARDS_ALGORITHMS],
    async find(header, token) {
      try {
        return await find(header, token)
      } catch (error) {
        const isOfToken = error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWKSMultipleMatchingKeys
        if (isOfToken || error instanceof errors.JOSENotSupported) throw error
        throw new KeysUnavailableError({ cause: error })
      }
    },
  }
}

function algorithmsOf(key: KeyObject): readonly string[] {
  if (key.asymmetricKeyType === 'rsa') return RSA_ALGORITHMS
  if (key.asymmetricKeyType === 'ed25519') return EDWARDS_ALGORITHMS
  const algorithm = CURVE_ALGORITHMS[key.asymmetricKeyDetails?.namedCurve ?? '']
  return algorithm === undefined ? [] : [algorithm]
}
