import { Writable } from 'node:stream'
import { type Logger, pino } from 'pino'

/** One line of a log. */
export interface LogLine {
  level: number
  msg: string
  [field: string]: unknown
}

/** A logger that keeps what it is told. */
export function captureLog(): { logger: Logger; lines: LogLine[]; messages(): string[] } {
  const lines: LogLine[] = []
  const stream = new Writable({
    write(chunk, _encoding, done) {
      lines.push(JSON.parse(String(chunk)))
      done()
    },
  })
  return { logger: pino({ level: 'debug' }, stream), lines, messages: () => lines.map((line) => line.msg) }
}
