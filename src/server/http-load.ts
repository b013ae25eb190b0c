import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** Counts the requests under way on each connection: pipelining sends many before the first is answered. */
export class HttpLoad {
  readonly #underWay = new WeakMap<Socket, number>()
  readonly #most: number

  constructor(most: number) {
    this.#most = most
  }

  /** Counts a request until its answer has gone. False: there are too many already. */
  admit({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const count = this.#underWay.get(socket) ?? 0
    if (count >= this.#most) return false
    this.#underWay.set(socket, count + 1)
    response.once('close', () => this.#underWay.set(socket, (this.#underWay.get(socket) ?? 1) - 1))
    return true
  }
}
