import { once } from 'node:events'
import { connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { WebSocket } from 'ws'
import type { Source } from './documents.ts'
import { Random } from './random.ts'
import { frame, type HttpRequest, httpRequest } from './requests.ts'

/** What to send, and where. */
export interface FuzzOptions {
  /** `http://127.0.0.1:4000`. */
  url: string
  requests: number
  seed: number
  /** Ids of jobs that are there. */
  ids: readonly string[]
  log?: (line: string) => void
}

/** What came back. */
export interface FuzzReport {
  seed: number
  /** Answers over HTTP by status; `none` where none was owed. */
  statuses: Record<string, number>
  /** Errors by their code. */
  codes: Record<string, number>
  frames: number
  /** Sockets by the code that they were closed with. */
  closed: Record<string, number>
  /** What should never be, with what had been sent. */
  faults: string[]
  /** Memory in use on the heap after a third of the requests, and at the end, in MB. */
  heapMb: [number, number]
}

/** Stacks, SQL, paths and messages of the database. */
const INTERNALS =
  /\n\s+at |node_modules|\.[jt]s:\d+|\/(src|dist|home|tmp|usr)\/|\b(select|insert into|update|delete from)\b.*\b(from|values|set|where)\b|syntax error at|relation \\?"|column \\?"|violates|SQLSTATE|TypeError|ReferenceError|postgres/i

/** How long an answer is waited for, in milliseconds: a subscription's has no end. */
const ANSWER_MS = 10_000
const STREAM_MS = 150
const AT_ONCE = 8

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Sends hostile and malformed requests, one in four of them a whole socket, and judges what comes back. */
export async function runFuzz({ url, requests, seed, ids, log }: FuzzOptions): Promise<FuzzReport> {
  const report: FuzzReport = { seed, statuses: {}, codes: {}, frames: 0, closed: {}, faults: [], heapMb: [0, 0] }
  // The page is megabytes, made once and kept.
  await fetch(`${url}/graphql`, { headers: { accept: 'text/html' } }).then((page) => page.text())
  let next = 0
  const send = async () => {
    for (let n = next++; n < requests; n = next++) {
      // Each its own, so that one can be sent again by itself whatever the others do.
      const source: Source = { random: new Random(seed * 1_000_003 + n), ids }
      if (source.random.chance(0.75)) await overHttp(url, httpRequest(source), report)
      else await overSocket(url, source, report)
      if (n === Math.floor(requests / 3)) report.heapMb[0] = heapMb()
      if (n % 1000 === 999) log?.(`${n + 1} requests, ${report.faults.length} faults, ${heapMb()} MB`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, send))
  report.heapMb[1] = heapMb()
  return report
}

function heapMb(): number {
  collect()
  return Math.round(process.memoryUsage().heapUsed / 104_857.6) / 10
}

async function overHttp(url: string, { bytes, answered }: HttpRequest, report: FuzzReport): Promise<void> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port) })
  socket.on('error', () => {})
  let text = ''
  let timer = setTimeout(() => socket.destroy(), answered ? ANSWER_MS : STREAM_MS)
  socket.on('data', (data) => {
    const streaming = text === '' && /content-type: (text\/event-stream|multipart\/mixed)/i.test(String(data))
    text += data
    if (!streaming) return
    clearTimeout(timer)
    timer = setTimeout(() => socket.destroy(), STREAM_MS)
  })
  socket.write(bytes)
  await once(socket, 'close')
  clearTimeout(timer)
  const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 'none'
  report.statuses[status] = (report.statuses[status] ?? 0) + 1
  const isPage = /content-type: text\/html/i.test(text)
  const why = Number(status) >= 500 ? `status ${status}` : status === 'none' && answered ? 'no answer' : undefined
  if (why !== undefined) report.faults.push(`${why} after ${excerpt(bytes)}: ${text.slice(0, 500)}`)
  if (!isPage) judge(text, bytes, report)
}

async function overSocket(url: string, source: Source, report: FuzzReport): Promise<void> {
  const { random } = source
  const socket = new WebSocket(`${url.replace('http', 'ws')}/graphql`, 'graphql-transport-ws')
  socket.on('error', () => {})
  const closed = new Promise<number>((resolve) => socket.once('close', resolve))
  const sent: (string | Buffer)[] = []
  socket.on('message', (data) => {
    report.frames++
    judge(String(data), sent.join('\n'), report)
  })
  const opened = await Promise.race([once(socket, 'open').then(() => true), closed.then(() => false)])
  if (!opened) {
    report.faults.push('a socket was not opened')
    return
  }
  for (let n = 0; n <= random.below(8); n++) {
    sent.push(frame(source, n))
    socket.send(sent.at(-1)!)
    // Most often a client waits until it is acknowledged.
    if (n === 0 && random.chance(0.9)) await Promise.race([once(socket, 'message'), closed])
    else if (random.chance(0.3)) await new Promise(setImmediate)
  }
  const left = setTimeout(() => (random.chance(0.5) ? socket.terminate() : socket.close()), random.below(STREAM_MS))
  const code = await closed
  clearTimeout(left)
  report.closed[code] = (report.closed[code] ?? 0) + 1
  if (code === 1011 || code === 4500) report.faults.push(`closed with ${code} after ${sent.join('\n').slice(0, 2000)}`)
}

function judge(text: string, sent: string | Buffer, report: FuzzReport): void {
  for (const [, code] of text.matchAll(/"extensions":\{"code":"(\w+)"/g)) {
    report.codes[code!] = (report.codes[code!] ?? 0) + 1
    if (code === 'INTERNAL' || code === 'UNAVAILABLE')
      report.faults.push(`${code} after ${excerpt(sent)}: ${text.slice(-500)}`)
  }
  // What a job was given is given back as it was.
  for (const [, message] of text.matchAll(/"message":"((?:[^"\\]|\\.)*)"/g)) {
    const leak = INTERNALS.exec(message!)
    if (leak) report.faults.push(`${leak[0]} in ${message} after ${excerpt(sent)}`)
  }
  if (/"(stack|originalError|exception)":/.test(text.replaceAll(/"errorStack\d*"/g, ''))) {
    report.faults.push(`a stack after ${excerpt(sent)}: ${text.slice(-500)}`)
  }
}

function excerpt(sent: string | Buffer): string {
  return JSON.stringify(String(sent).slice(0, 3000))
}
