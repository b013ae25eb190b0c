import { createSecretKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createAuthenticator } from '../../src/server/auth/authenticator.ts'
import type { TokenOptions } from '../../src/server/auth/tokens.ts'
import { createServer } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'
import { RawSocket } from './raw-socket.ts'
import { SseStream } from './sse-stream.ts'
import { forgedToken, inSeconds, tokenOf } from './tokens.ts'

const SECRET = 'a secret of more than 32 bytes, for tests'
const secret = createSecretKey(Buffer.from(SECRET))
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const rsaPem = String(rsa.publicKey.export({ type: 'spki', format: 'pem' }))

/** Who a token is of, or with which code it is refused. */
async function who(tokens: TokenOptions, token: string): Promise<unknown> {
  return createAuthenticator({ tokens })
    .authenticate(token)
    .then(
      ({ viewer: { name, role } }) => `${name} ${role}`,
      (error: { code: string }) => error.code,
    )
}

test('tokens of a secret: signature, times, issuer, audience and subject count', async () => {
  const tokens = { secret: SECRET, issuer: 'https://issuer.example', audience: 'coppice' }
  const good = { iss: tokens.issuer, aud: 'coppice' }
  expect(await who(tokens, await tokenOf(secret, 'HS256', good))).toBe('ann viewer')
  expect(await who(tokens, await tokenOf(secret, 'HS512', { ...good, aud: ['a', 'coppice'] }))).toBe('ann viewer')
  const [header, , signature] = (await tokenOf(secret, 'HS256', good)).split('.')
  const claims = Buffer.from(JSON.stringify({ sub: 'ann', role: 'admin', exp: inSeconds(60), ...good }))
  const wrong: Record<string, string> = {
    'another secret': await tokenOf(createSecretKey(Buffer.from('x'.repeat(40))), 'HS256', good),
    'other claims': `${header}.${claims.toString('base64url')}.${signature}`,
    'another issuer': await tokenOf(secret, 'HS256', { ...good, iss: 'https://other.example' }),
    'another audience': await tokenOf(secret, 'HS256', { ...good, aud: 'other' }),
    'no audience': await tokenOf(secret, 'HS256', { iss: tokens.issuer }),
    expired: await tokenOf(secret, 'HS256', { ...good, exp: inSeconds(-1) }),
    'not yet': await tokenOf(secret, 'HS256', { ...good, nbf: inSeconds(60) }),
    'no subject': await new SignJWT({ ...good, role: 'admin', exp: inSeconds(60) })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(secret),
    'no expiry': await new SignJWT({ ...good, sub: 'ann', role: 'admin' })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(secret),
    'a subject that is no name': await tokenOf(secret, 'HS256', { ...good, sub: 'a\u0000b' }),
    'a subject that is a book': await tokenOf(secret, 'HS256', { ...good, sub: 'x'.repeat(201) }),
    'no token': 'a.b.c',
    nothing: '..',
  }
  for (const [what, token] of Object.entries(wrong)) expect(await who(tokens, token), what).toBe('UNAUTHENTICATED')
})

test('a token is never checked by the algorithm that it names itself', async () => {
  const claims = { sub: 'eve', role: 'admin', exp: inSeconds(60) }
  for (const tokens of [{ secret: SECRET }, { publicKey: rsaPem }, { secret: SECRET, publicKey: rsaPem }]) {
    for (const alg of ['none', 'None', 'NONE', '']) {
      expect(await who(tokens, forgedToken({ alg }, claims)), `${alg} unsigned`).toBe('UNAUTHENTICATED')
      expect(await who(tokens, forgedToken({ alg }, claims, SECRET)), alg).toBe('UNAUTHENTICATED')
    }
    // The public key, which everybody knows, as if it were the secret.
    const der = rsa.publicKey.export({ type: 'spki', format: 'der' })
    for (const key of [rsaPem, rsaPem.trim(), der]) {
      expect(await who(tokens, forgedToken({ alg: 'HS256' }, claims, key))).toBe('UNAUTHENTICATED')
    }
    const jwk = await exportJWK(generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey)
    expect(await who(tokens, forgedToken({ alg: 'RS256', jwk }, claims, 'x'))).toBe('UNAUTHENTICATED')
  }
  expect(await who({ publicKey: rsaPem }, await tokenOf(secret, 'HS256'))).toBe('UNAUTHENTICATED')
  expect(await who({ secret: SECRET }, await tokenOf(rsa.privateKey, 'RS256'))).toBe('UNAUTHENTICATED')
  expect(await who({ secret: SECRET, publicKey: rsaPem }, await tokenOf(rsa.privateKey, 'RS256'))).toBe('ann viewer')
  expect(await who({ secret: SECRET, publicKey: rsaPem }, await tokenOf(secret, 'HS256'))).toBe('ann viewer')
})

test('public keys of each kind take the algorithms of that kind only', async () => {
  const kinds: [{ publicKey: KeyObject; privateKey: KeyObject }, string[]][] = [
    [rsa, ['RS256', 'PS512']],
    [generateKeyPairSync('ec', { namedCurve: 'P-256' }), ['ES256']],
    [generateKeyPairSync('ec', { namedCurve: 'P-384' }), ['ES384']],
    [generateKeyPairSync('ed25519'), ['EdDSA']],
  ]
  for (const [{ publicKey }] of kinds) {
    const tokens = { publicKey: String(publicKey.export({ type: 'spki', format: 'pem' })) }
    for (const [{ publicKey: other, privateKey }, algorithms] of kinds) {
      for (const alg of algorithms) {
        const expected = other === publicKey ? 'ann viewer' : 'UNAUTHENTICATED'
        expect(await who(tokens, await tokenOf(privateKey, alg)), alg).toBe(expected)
      }
    }
  }
})

test('the role is a claim, a list, or lies in an object; the highest counts, and without one nothing is allowed', async () => {
  const cases: [string | undefined, object, string][] = [
    [undefined, { role: 'ADMIN' }, 'ann admin'],
    [undefined, { role: ['viewer', 'other', 'Operator'] }, 'ann operator'],
    [undefined, { role: 'boss' }, 'FORBIDDEN'],
    [undefined, { role: { admin: true } }, 'FORBIDDEN'],
    [undefined, { role: null }, 'FORBIDDEN'],
    ['realm_access.roles', { realm_access: { roles: ['operator'] } }, 'ann operator'],
    ['realm_access.roles', { realm_access: 'operator' }, 'FORBIDDEN'],
    ['https://app.example/role', { 'https://app.example/role': 'admin' }, 'ann admin'],
    ['__proto__.role', { other: 1 }, 'FORBIDDEN'],
  ]
  for (const [roleClaim, claims, expected] of cases) {
    const token = await tokenOf(secret, 'HS256', claims as Record<string, unknown>)
    expect(await who({ secret: SECRET, roleClaim }, token), JSON.stringify(claims)).toBe(expected)
  }
})

test('published keys are fetched, and followed when they change; out of reach is no fault of the caller', async () => {
  const pairs = ['one', 'two'].map((kid) => ({ kid, ...generateKeyPairSync('ec', { namedCurve: 'P-256' }) }))
  let published = [pairs[0]!]
  let asked = 0
  const issuer = createHttpServer(async (_request, response) => {
    asked++
    const keys = await Promise.all(
      published.map(async ({ kid, publicKey }) => ({ ...(await exportJWK(publicKey)), kid })),
    )
    response.end(JSON.stringify({ keys: [...keys, { kty: 'oct', k: 'c2VjcmV0', kid: 'oct' }] }))
  })
  await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve))
  const { port } = issuer.address() as AddressInfo
  const tokens = { jwksUrl: `http://127.0.0.1:${port}/keys`, issuer: 'me', audience: 'coppice' }
  const signed = (pair: (typeof pairs)[0], kid = pair.kid) =>
    new SignJWT({ sub: 'ann', role: 'operator', exp: inSeconds(60), iss: 'me', aud: 'coppice' })
      .setProtectedHeader({ alg: 'ES256', kid })
      .sign(pair.privateKey)
  const { authenticate } = createAuthenticator({ tokens })
  for (let n = 0; n < 3; n++) expect((await authenticate(await signed(pairs[0]!))).viewer.role).toBe('operator')
  expect(asked).toBe(1)
  for (const token of [
    await signed(pairs[1]!, 'one'),
    await signed(pairs[1]!),
    forgedToken({ alg: 'HS256', kid: 'oct' }, { sub: 'eve', role: 'admin', exp: inSeconds(60) }, 'secret'),
  ]) {
    await expect(authenticate(token)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  }
  // Tokens of unknown keys do not have them fetched again and again.
  expect(asked).toBe(1)
  published = [pairs[1]!]
  expect(await who(tokens, await signed(pairs[1]!))).toBe('ann operator')
  await new Promise((resolve) => issuer.close(resolve))
  expect(await who(tokens, await signed(pairs[1]!))).toBe('UNAVAILABLE')
})

let api: Api
beforeAll(async () => {
  api = await startApi({ serving: { auth: { tokens: { secret: SECRET } } } })
})
afterAll(() => api.stop())

const EVENTS = 'subscription { jobEvents { events { jobId } cursor ended } }'

test('when a token expires its socket closes with 4403 and its stream ends with an error; others go on', async () => {
  const short = await tokenOf(secret, 'HS256', { exp: inSeconds(6) })
  const long = await tokenOf(secret, 'HS256')
  const url = `${api.server.url}/graphql`
  const open = async (token: string) => {
    const socket = await RawSocket.open(url.replace('http:', 'ws:'))
    await socket.init({ token })
    socket.subscribe('1', EVENTS)
    await socket.frame('1', 'next')
    return socket
  }
  const [ending, staying] = [await open(short), await open(long)]
  // One that does not answer the close frame either, and goes on talking.
  const frozen = await open(short)
  frozen.webSocket.pause()
  const stream = await SseStream.open(url, EVENTS, {}, short)
  await until(() => stream.next().length > 0)
  expect((await api.run('{ viewer { name } }', {}, short)).status).toBe(200)
  expect(api.engine.feed.stats().subscribers).toBe(4)

  const { code, reason } = await until(() => ending.closed, { timeout: 12_000 })
  const closedAt = Date.now()
  expect({ code, reason }).toEqual({ code: 4403, reason: 'The token has expired.' })
  const { exp } = JSON.parse(Buffer.from(short.split('.')[1]!, 'base64url').toString())
  expect(closedAt).toBeGreaterThanOrEqual(exp * 1000)
  expect(closedAt).toBeLessThan(exp * 1000 + 1500)
  frozen.subscribe('late', 'mutation { enqueueJob(input: { type: "late" }) { __typename } }')
  await until(() => stream.ended)
  expect(stream.next().at(-1)).toMatchObject({ errors: [{ extensions: { code: 'UNAUTHENTICATED' } }] })
  expect(stream.events.at(-1)!.event).toBe('complete')
  await until(() => api.engine.feed.stats().subscribers === 1, { timeout: 5000, what: 'only the living one' })
  expect((await api.run('{ viewer { name } }', {}, short)).errors).toMatchObject([
    { extensions: { code: 'UNAUTHENTICATED' } },
  ])
  await api.engine.enqueueMany([{ type: 'after' }])
  await until(() => staying.next('1').some((frame) => frame.data.jobEvents.events.length > 0))
  expect(staying.closed).toBeUndefined()
  for (const socket of [frozen, staying]) socket.close()
})

test('keys that cannot be fetched close the socket so that its client comes back', async () => {
  const server = await createServer({
    engine: api.engine,
    config: { host: '127.0.0.1', port: 0 },
    auth: { tokens: { jwksUrl: 'http://127.0.0.1:1/keys', issuer: 'me', audience: 'me' } },
    logger: silent(),
  })
  const token = await tokenOf(rsa.privateKey, 'RS256', { iss: 'me', aud: 'me' })
  const socket = await RawSocket.open(`${server.url.replace('http', 'ws')}/graphql`)
  socket.send({ type: 'connection_init', payload: { token } })
  expect((await until(() => socket.closed)).code).toBe(1013)
  const answer = await fetch(`${server.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ query: '{ viewer { name } }' }),
  })
  expect(answer.status).toBe(503)
  expect(await answer.json()).toMatchObject({ errors: [{ extensions: { code: 'UNAVAILABLE' } }] })
  await server.stop()
})
