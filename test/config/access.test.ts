import { generateKeyPairSync } from 'node:crypto'
import { expect, test } from 'vitest'
import { ConfigError, loadConfig } from '../../src/config.ts'

const HASH = 'ab'.repeat(32)
const SECRET = 'not-to-be-seen'.repeat(3)

/** What is wrong with these variables, by variable. */
function wrong(env: Record<string, string>): Record<string, string> {
  try {
    loadConfig({ env })
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    for (const value of Object.values(env)) if (value === SECRET) expect(error.message).not.toContain(value)
    return Object.fromEntries(error.issues.map(({ source, given }) => [source, given]))
  }
  return {}
}

function pem(type: 'rsa' | 'ec' | 'ed25519', options: object, which: 'publicKey' | 'privateKey' = 'publicKey'): string {
  const pair = generateKeyPairSync(type as 'rsa', options as { modulusLength: number })
  const format = which === 'publicKey' ? { type: 'spki', format: 'pem' } : { type: 'pkcs8', format: 'pem' }
  return String((pair[which] as { export(format: object): unknown }).export(format))
}

test('keys are entries with a name of their own, a role and a hash, and are not told when they are wrong', () => {
  for (const entries of [`ci:operator:${HASH}`, ` ci:operator:${HASH} ,a.b-c_d@e:Viewer:${HASH.toUpperCase()}`]) {
    expect(wrong({ COPPICE_API_KEYS: entries })).toEqual({})
  }
  for (const entries of [
    'ci',
    `ci:operator`,
    `ci:boss:${HASH}`,
    `:viewer:${HASH}`,
    `a b:viewer:${HASH}`,
    `ci:viewer:${HASH.slice(1)}`,
    `ci:viewer:${HASH}:more`,
    `ci:viewer:${HASH},`,
    `ci:viewer:${HASH},ci:admin:${HASH}`,
    SECRET,
  ]) {
    expect(wrong({ COPPICE_API_KEYS: entries }), entries).toEqual({ COPPICE_API_KEYS: '(not shown)' })
  }
})

test('keys that tokens are checked with must be strong enough to tell anything', () => {
  expect(wrong({ COPPICE_JWT_SECRET: 'x'.repeat(31) })).toEqual({ COPPICE_JWT_SECRET: '(not shown)' })
  const good = [pem('rsa', { modulusLength: 2048 }), pem('ec', { namedCurve: 'P-256' }), pem('ed25519', {})]
  for (const key of good) {
    expect(wrong({ COPPICE_JWT_PUBLIC_KEY: key })).toEqual({})
    const line = key.replaceAll('\n', '\\n')
    expect(loadConfig({ env: { COPPICE_JWT_PUBLIC_KEY: line } }).jwtPublicKey?.trim()).toBe(key.trim())
  }
  for (const key of [
    'text',
    pem('rsa', { modulusLength: 1024 }),
    pem('ec', { namedCurve: 'P-256' }, 'privateKey'),
    pem('ec', { namedCurve: 'secp256k1' }),
  ]) {
    expect(wrong({ COPPICE_JWT_PUBLIC_KEY: key }), key).toEqual({ COPPICE_JWT_PUBLIC_KEY: '(not shown)' })
  }
})

test('settings of tokens that make no sense together are refused', () => {
  const jwks = { COPPICE_JWT_JWKS_URL: 'https://issuer.example/keys' }
  const claims = { COPPICE_JWT_ISSUER: 'https://issuer.example', COPPICE_JWT_AUDIENCE: 'coppice' }
  expect(wrong({ ...jwks, ...claims })).toEqual({})
  expect(wrong({ ...jwks, ...claims, COPPICE_JWT_JWKS_URL: 'http://127.0.0.1:9/keys' })).toEqual({})
  expect(wrong({ COPPICE_JWT_SECRET: SECRET, ...claims })).toEqual({})
  expect(wrong(jwks)).toEqual({ COPPICE_JWT_ISSUER: 'not set', COPPICE_JWT_AUDIENCE: 'not set' })
  expect(wrong(claims)).toEqual({ COPPICE_JWT_ISSUER: 'set', COPPICE_JWT_AUDIENCE: 'set' })
  const key = pem('ed25519', {})
  expect(wrong({ ...jwks, ...claims, COPPICE_JWT_PUBLIC_KEY: key })).toEqual({ COPPICE_JWT_PUBLIC_KEY: 'set' })
  for (const url of ['keys', 'http://issuer.example/keys', 'file:///keys']) {
    expect(Object.keys(wrong({ ...claims, COPPICE_JWT_JWKS_URL: url })), url).toEqual(['COPPICE_JWT_JWKS_URL'])
  }
})

test('origins are origins, without a path', () => {
  expect(loadConfig({ env: { COPPICE_CORS_ORIGINS: 'HTTPS://App.Example' } }).corsOrigins).toEqual([
    'https://app.example',
  ])
  for (const origins of [
    '*',
    'null',
    'app.example',
    'https://app.example/',
    'https://a.example,,',
    'ftp://a.example',
  ]) {
    expect(Object.keys(wrong({ COPPICE_CORS_ORIGINS: origins })), origins).toEqual(['COPPICE_CORS_ORIGINS'])
  }
})
