import { destination, type Logger, pino } from 'pino'

/**
 * Structured logs as JSON lines on standard error: standard output is for what a command has to say.
 *
 * @param level least level that is logged.
 */
export function createLogger(level: string): Logger {
  return pino({ level, base: null }, destination({ dest: 2, sync: true }))
}
