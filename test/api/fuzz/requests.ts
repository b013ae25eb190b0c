import { broken, fittingDocument, type Source } from './documents.ts'
import { anyJson, anyText } from './values.ts'

/** A request as it goes over the wire. */
export interface HttpRequest {
  bytes: Buffer
  /** Whether the server owes an answer: it does not where it was promised more than came. */
  answered: boolean
}

const METHODS = ['POST', 'POST', 'POST', 'POST', 'GET', 'PUT', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH', 'TRACE', 'BREW']
const PATHS = ['/graphql', '/graphql', '/graphql', '/graphql', '/graphql/', '/graphql?', '/', '/healthz', '/readyz']
const ODD_PATHS = [
  '/metrics',
  '//',
  '/../x',
  '/%00',
  '/graphql%2f',
  '/%',
  '/graphql?query=%7B',
  '*',
  'http://evil.example/graphql',
]
const TYPES = [
  'application/json',
  'application/json',
  'application/json',
  'application/json; charset=utf-8',
  'application/json; charset=utf-16',
  'application/graphql+json',
  'application/graphql',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'multipart/form-data',
  'text/plain',
  'application/octet-stream',
  'x',
  '',
]
const ACCEPTS = [
  '*/*',
  'application/json',
  'application/graphql-response+json',
  'text/event-stream',
  'multipart/mixed',
  'text/html',
  'image/png',
  ';;,,',
]

/** The params of an operation, whole or not. */
export function operation(source: Source): string {
  const { random, ids } = source
  const fitting = fittingDocument(source)
  const query = random.chance(0.35) ? broken(random, fitting) : fitting
  const params: Record<string, unknown> = { query }
  if (random.chance(0.2)) params.variables = anyJson(random, ids)
  if (random.chance(0.1)) params.operationName = anyJson(random, ids)
  if (random.chance(0.1)) params.extensions = anyJson(random, ids)
  if (random.chance(0.05)) params.query = anyJson(random, ids)
  if (random.chance(0.03)) params[anyText(random, ids)] = anyJson(random, ids)
  const text = JSON.stringify(params)
  if (random.chance(0.04)) return `[${text},${text}]`
  return random.chance(0.1) ? broken(random, text) : text
}

/** Any request over HTTP. */
export function httpRequest(source: Source): HttpRequest {
  const { random } = source
  const usual = random.chance(0.6)
  const method = usual ? 'POST' : random.pick(METHODS)
  const path = usual ? '/graphql' : random.pick(random.chance(0.3) ? ODD_PATHS : PATHS)
  const type = usual ? 'application/json' : random.pick(TYPES)
  const text = operation(source)
  const body = Buffer.from(random.chance(0.02) ? text + ' '.repeat(300_000) : text)
  if (random.chance(0.02)) for (let n = 0; n < 5; n++) body[random.below(body.length)] = random.below(256)
  const search = !usual && method === 'GET' ? `?query=${encodeURIComponent(broken(random, '{ viewer { name } }'))}` : ''
  const lying = random.chance(0.03)
  const headers: [string, string][] = [
    ['host', 'localhost'],
    ['connection', 'close'],
    ['content-length', String(lying ? body.length + 10 : body.length)],
    ['accept', usual ? random.pick(ACCEPTS.slice(0, 4)) : random.pick(ACCEPTS)],
  ]
  if (type !== '') headers.push(['content-type', type])
  if (!usual && random.chance(0.3)) headers.push(...oddHeaders(source))
  const head = [`${method} ${path}${search} HTTP/1.1`, ...headers.map((pair) => pair.join(': '))]
  return { bytes: Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`, 'latin1'), body]), answered: !lying }
}

function oddHeaders({ random }: Source): [string, string][] {
  return random.pick<[string, string][]>([
    [['host', 'evil.example']],
    [['authorization', 'Bearer a.b.c']],
    [['authorization', 'Basic eDp5']],
    [['authorization', `Bearer ${'x'.repeat(8000)}`]],
    [['origin', 'https://evil.example']],
    [['x-coppice-csrf', '1']],
    [['content-encoding', 'gzip']],
    [['transfer-encoding', 'chunked']],
    [['transfer-encoding', 'nonsense']],
    [['content-length', '-1']],
    [['content-length', '5']],
    [['expect', '100-continue']],
    [['expect', 'more']],
    [['cookie', 'x='.repeat(5000)]],
    [['x-large', 'x'.repeat(20_000)]],
    [['x-odd', '\u00ff\u0001']],
    [
      ['upgrade', 'websocket'],
      ['connection', 'upgrade'],
    ],
    [
      ['upgrade', 'h2c'],
      ['connection', 'upgrade'],
    ],
  ])
}

const TYPES_OF_FRAMES = [
  ...Array<string>(20).fill('subscribe'),
  'complete',
  'complete',
  'complete',
  'ping',
  'pong',
  'nonsense',
  'next',
]

/** Any message on a socket, the first one most often a good beginning. */
export function frame(source: Source, index: number): string | Buffer {
  const { random, ids } = source
  if (index === 0 && random.chance(0.9)) {
    const payload = random.chance(0.2) ? anyJson(random, ids) : undefined
    return JSON.stringify({ type: 'connection_init', payload })
  }
  if (random.chance(0.03)) return Buffer.from(random.times(random.below(50), () => random.below(256)))
  const message: Record<string, unknown> = { id: String(random.below(4)), type: random.pick(TYPES_OF_FRAMES) }
  if (message.type === 'subscribe') {
    const text = operation(source)
    try {
      message.payload = JSON.parse(text)
    } catch {
      message.payload = text
    }
  } else if (random.chance(0.3)) message.payload = anyJson(random, ids)
  if (random.chance(0.03)) message.id = anyJson(random, ids)
  const text = JSON.stringify(message)
  return random.chance(0.03) ? broken(random, text) : text
}
