import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { ErrorCodeName } from '../schema/enums.ts'

/** Answers a request that is not for GraphQL with a few words of JSON. */
export function answer(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers })
  response.end(`${JSON.stringify(body)}\n`)
}

/** Answers with an error in the shape that GraphQL clients expect. */
export function answerError(
  response: ServerResponse,
  status: number,
  code: ErrorCodeName,
  message: string,
  headers: Record<string, string> = {},
): void {
  answer(response, status, { errors: [{ message, extensions: { code } }] }, headers)
}

/** Refuses to open a WebSocket. */
export function refuseUpgrade(socket: Duplex, status: number): void {
  socket.on('error', () => {})
  // Whatever was sent along is never read, nor the end behind it: such a socket would stay for ever.
  socket.once('finish', () => socket.destroy())
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`)
}
