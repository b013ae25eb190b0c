import { createPublicKey } from 'node:crypto'
import { z } from 'zod'
import { apiKeys } from './api-key.ts'
import { text } from './parsers.ts'
import type { Setting } from './setting.ts'

/** Shortest secret that tokens are signed with, in bytes: as long as the hash. */
const LEAST_SECRET_BYTES = 32

/** The curves of ES256, ES384 and ES512. */
const SIGNING_CURVES = ['prime256v1', 'secp384r1', 'secp521r1']

const publicKey = text
  .transform((value) => value.replaceAll('\\n', '\n'))
  .refine((value) => {
    try {
      const { asymmetricKeyType: type, asymmetricKeyDetails: details } = createPublicKey(value)
      if (value.includes('PRIVATE')) return false
      if (type === 'rsa') return (details?.modulusLength ?? 0) >= 2048
      return type === 'ed25519' || (type === 'ec' && SIGNING_CURVES.includes(details?.namedCurve ?? ''))
    } catch {
      return false
    }
  })

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']

const jwksUrl = text.refine((value) => {
  if (!URL.canParse(value)) return false
  const { protocol, hostname } = new URL(value)
  // Whoever could change the answer on its way could make tokens.
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK.includes(hostname))
})

const origins = text
  .transform((value) => [...new Set(value.split(',').map((origin) => origin.trim().toLowerCase()))])
  .refine((list) => list.every((origin) => /^https?:/.test(origin) && originOf(origin) === origin))

function originOf(value: string): string | undefined {
  return URL.canParse(value) ? new URL(value).origin : undefined
}

/** Settings of who may use the API. */
export const ACCESS_SETTINGS = [
  {
    name: 'apiKeys',
    env: 'COPPICE_API_KEYS',
    flag: '--api-keys',
    placeholder: 'ENTRIES',
    description: 'API keys, as entries that `coppice key` prints; with any, or with tokens, callers must show one',
    expected: 'entries such as ci:operator:HASH separated by commas, each name once, HASH being 64 hexadecimal digits',
    secret: true,
    parser: apiKeys.optional(),
  },
  {
    name: 'jwtSecret',
    env: 'COPPICE_JWT_SECRET',
    flag: '--jwt-secret',
    placeholder: 'SECRET',
    description: 'secret that tokens (JWT) are signed with: HS256, HS384 or HS512',
    expected: `at least ${LEAST_SECRET_BYTES} bytes`,
    secret: true,
    parser: z
      .string()
      .refine((value) => Buffer.byteLength(value) >= LEAST_SECRET_BYTES)
      .optional(),
  },
  {
    name: 'jwtPublicKey',
    env: 'COPPICE_JWT_PUBLIC_KEY',
    flag: '--jwt-public-key',
    placeholder: 'PEM',
    description: 'public key that tokens are checked with; line ends may be written as \\n',
    expected: 'a public key in PEM form: RSA of 2048 bits or more, P-256, P-384, P-521 or Ed25519',
    secret: true,
    parser: publicKey.optional(),
  },
  {
    name: 'jwtJwksUrl',
    env: 'COPPICE_JWT_JWKS_URL',
    flag: '--jwt-jwks-url',
    placeholder: 'URL',
    description: 'where the public keys that tokens are checked with are published (JWKS)',
    expected: 'an https URL, or an http one on this machine',
    parser: jwksUrl.optional(),
  },
  {
    name: 'jwtIssuer',
    env: 'COPPICE_JWT_ISSUER',
    flag: '--jwt-issuer',
    placeholder: 'TEXT',
    description: 'who must have issued a token (claim iss); needed with a JWKS URL',
    expected: 'text',
    parser: text.optional(),
  },
  {
    name: 'jwtAudience',
    env: 'COPPICE_JWT_AUDIENCE',
    flag: '--jwt-audience',
    placeholder: 'TEXT',
    description: 'whom a token must be meant for (claim aud); needed with a JWKS URL',
    expected: 'text',
    parser: text.optional(),
  },
  {
    name: 'jwtRoleClaim',
    env: 'COPPICE_JWT_ROLE_CLAIM',
    flag: '--jwt-role-claim',
    placeholder: 'CLAIM',
    description: 'claim that holds the role, or a list with it; dots lead into objects, as in realm_access.roles',
    expected: 'the name of a claim',
    default: 'role',
    parser: text,
  },
  {
    name: 'corsOrigins',
    env: 'COPPICE_CORS_ORIGINS',
    flag: '--cors-origins',
    placeholder: 'ORIGINS',
    description: 'origins of web pages that may use the API from elsewhere, separated by commas; without it, none',
    expected: 'origins such as https://app.example.com, separated by commas',
    parser: origins.optional(),
  },
] as const satisfies readonly Setting[]
