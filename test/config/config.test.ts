import { expect, test } from 'vitest'
import { ConfigError, flagKey, loadConfig, settings, settingsTable } from '../../src/config.ts'

function issuesOf(sources: Parameters<typeof loadConfig>[0]): ConfigError {
  try {
    loadConfig(sources)
  } catch (error) {
    if (error instanceof ConfigError) return error
    throw error
  }
  throw new Error('the settings were accepted')
}

test('with nothing given there is a default for everything', () => {
  expect(loadConfig({ env: {} })).toEqual({
    databaseUrl: undefined,
    directDatabaseUrl: undefined,
    port: 4000,
    host: '127.0.0.1',
    dataDir: '.coppice',
    schema: 'coppice',
    queues: undefined,
    concurrency: 10,
    pollOnly: false,
    heartbeatMs: 5_000,
    graceMs: 30_000,
    keepCompletedMs: undefined,
    keepFailedMs: undefined,
    keepCancelledMs: undefined,
    keepEventsMs: undefined,
    logLevel: 'info',
    apiKeys: undefined,
    jwtSecret: undefined,
    jwtPublicKey: undefined,
    jwtJwksUrl: undefined,
    jwtIssuer: undefined,
    jwtAudience: undefined,
    jwtRoleClaim: 'role',
    corsOrigins: undefined,
    maxCost: 100_000,
    maxDepth: 20,
    maxAliases: 100,
    maxTokens: 5000,
    maxRequestBytes: 262_144,
    requestTimeoutMs: 30_000,
    maxOperations: 50,
    maxSubscriptions: 100,
    maxConnections: 10_000,
  })
})

test('every variable is read', () => {
  const env = {
    DATABASE_URL: 'postgres://me:secret@db:6432/app?sslmode=disable',
    DIRECT_DATABASE_URL: 'postgresql://me:secret@db/app',
    PORT: '0',
    HOST: '::1',
    COPPICE_DATA_DIR: '/srv/data',
    COPPICE_SCHEMA: 'jobs',
    COPPICE_QUEUES: 'mail, default,mail',
    COPPICE_CONCURRENCY: '64',
    COPPICE_POLL_ONLY: 'yes',
    COPPICE_HEARTBEAT: '500ms',
    COPPICE_GRACE: '2m',
    COPPICE_KEEP_COMPLETED: '7d',
    COPPICE_KEEP_FAILED: '30d',
    COPPICE_KEEP_CANCELLED: '12h',
    COPPICE_KEEP_EVENTS: '1m',
    COPPICE_LOG_LEVEL: 'debug',
    COPPICE_API_KEYS: `ci:operator:${'ab'.repeat(32)}, ann@example.com:ADMIN:${'CD'.repeat(32)}`,
    COPPICE_JWT_SECRET: 's'.repeat(32),
    COPPICE_JWT_JWKS_URL: 'https://issuer.example/keys',
    COPPICE_JWT_ISSUER: 'https://issuer.example',
    COPPICE_JWT_AUDIENCE: 'coppice',
    COPPICE_JWT_ROLE_CLAIM: 'realm_access.roles',
    COPPICE_CORS_ORIGINS: 'https://app.example, http://localhost:3000',
    COPPICE_MAX_COST: '1000',
    COPPICE_MAX_DEPTH: '9',
    COPPICE_MAX_ALIASES: '0',
    COPPICE_MAX_TOKENS: '2000',
    COPPICE_MAX_REQUEST_BYTES: '1048576',
    COPPICE_REQUEST_TIMEOUT: '5s',
    COPPICE_MAX_OPERATIONS: '5',
    COPPICE_MAX_SUBSCRIPTIONS: '6',
    COPPICE_MAX_CONNECTIONS: '7',
  }
  // The public key is the other of two ways.
  const names = settings.map((setting) => setting.env).filter((name) => name !== 'COPPICE_JWT_PUBLIC_KEY')
  expect(Object.keys(env).sort()).toEqual(names.sort())
  expect(loadConfig({ env })).toEqual({
    databaseUrl: env.DATABASE_URL,
    directDatabaseUrl: env.DIRECT_DATABASE_URL,
    port: 0,
    host: '::1',
    dataDir: '/srv/data',
    schema: 'jobs',
    queues: ['mail', 'default'],
    concurrency: 64,
    pollOnly: true,
    heartbeatMs: 500,
    graceMs: 120_000,
    keepCompletedMs: 604_800_000,
    keepFailedMs: 2_592_000_000,
    keepCancelledMs: 43_200_000,
    keepEventsMs: 60_000,
    logLevel: 'debug',
    apiKeys: [
      { name: 'ci', role: 'operator', hash: 'ab'.repeat(32) },
      { name: 'ann@example.com', role: 'admin', hash: 'cd'.repeat(32) },
    ],
    jwtSecret: 's'.repeat(32),
    jwtPublicKey: undefined,
    jwtJwksUrl: 'https://issuer.example/keys',
    jwtIssuer: 'https://issuer.example',
    jwtAudience: 'coppice',
    jwtRoleClaim: 'realm_access.roles',
    corsOrigins: ['https://app.example', 'http://localhost:3000'],
    maxCost: 1000,
    maxDepth: 9,
    maxAliases: 0,
    maxTokens: 2000,
    maxRequestBytes: 1_048_576,
    requestTimeoutMs: 5000,
    maxOperations: 5,
    maxSubscriptions: 6,
    maxConnections: 7,
  })
})

test('a flag goes before its variable, an empty variable counts as none', () => {
  const env = { PORT: '5000', COPPICE_GRACE: '', COPPICE_DATA_DIR: ' ' }
  const flags = { port: '6000', dataDir: undefined, pollOnly: true, grace: 1500 }
  expect(loadConfig({ env, flags })).toMatchObject({ port: 6000, dataDir: '.coppice', pollOnly: true, graceMs: 1_500 })
})

test('past the pooler is the same server unless another is named', () => {
  const env = { DATABASE_URL: 'postgres://db/app' }
  expect(loadConfig({ env }).directDatabaseUrl).toBe('postgres://db/app')
  expect(issuesOf({ env: { DIRECT_DATABASE_URL: 'postgres://db/app' } }).issues).toEqual([
    { source: 'DATABASE_URL', given: 'not set', expected: 'a URL too when DIRECT_DATABASE_URL is set' },
  ])
})

test('everything wrong is listed at once, with what was given, by what, and what is expected', () => {
  const error = issuesOf({
    env: { PORT: '70000', COPPICE_HEARTBEAT: '5 minutes', COPPICE_QUEUES: 'a,,b' },
    flags: { logLevel: 'loud' },
  })
  expect(error.code).toBe('CONFIG')
  expect(error.message).toBe(
    [
      'Some settings are wrong:',
      '  PORT is "70000": expected a whole number from 0 to 65535',
      '  COPPICE_QUEUES is "a,,b": expected names separated by commas, such as default,mail',
      '  COPPICE_HEARTBEAT is "5 minutes": expected a duration from 100ms to 1h, such as 500ms, 5s or 1m',
      '  --log-level is "loud": expected one of fatal, error, warn, info, debug, trace, silent',
    ].join('\n'),
  )
})

test.each([
  ['PORT', '4000.5'],
  ['PORT', '-1'],
  ['PORT', '0x10'],
  ['HOST', 'http://localhost'],
  ['DATABASE_URL', 'mysql://db/app'],
  ['DATABASE_URL', 'db/app'],
  ['DATABASE_URL', 'postgres://db:port/app'],
  ['COPPICE_SCHEMA', 'pg_jobs'],
  ['COPPICE_SCHEMA', 'my jobs'],
  ['COPPICE_CONCURRENCY', '0'],
  ['COPPICE_CONCURRENCY', 'many'],
  ['COPPICE_POLL_ONLY', 'maybe'],
  ['COPPICE_HEARTBEAT', '50ms'],
  ['COPPICE_GRACE', '2d'],
  ['COPPICE_KEEP_COMPLETED', '0'],
  ['COPPICE_KEEP_FAILED', 'for ever'],
  ['COPPICE_KEEP_CANCELLED', '4000d'],
  ['COPPICE_KEEP_EVENTS', '5s'],
])('%s=%s is wrong', (name, value) => {
  expect(issuesOf({ env: { [name]: value } }).issues).toMatchObject([{ source: name, given: JSON.stringify(value) }])
})

test.each(['mysql://me:se@cret@db/app', 'me:secret@db', 'http://db/app?user=me&password=secret'])(
  'the password in %s is not shown',
  (url) => {
    expect(issuesOf({ env: { DATABASE_URL: url } }).message).not.toMatch(/cret/)
  },
)

test('each setting is in the table of the README, with names that no other has', () => {
  const lines = settingsTable().split('\n').slice(2)
  expect(lines).toHaveLength(settings.length)
  expect(lines[2]).toBe(
    '| `PORT` | `--port PORT` | `4000` | TCP port of the API and the web page; 0 takes a free one |',
  )
  for (const key of ['name', 'env', 'flag'] as const) {
    expect(new Set(settings.map((setting) => setting[key])).size).toBe(settings.length)
  }
  expect(settings.map(flagKey)).toContain('directDatabaseUrl')
})
