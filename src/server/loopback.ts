/** A host that other machines could reach, and no authentication set up. */
export class InsecureHostError extends Error {
  readonly code = 'INSECURE_HOST'

  constructor(host: string) {
    super(
      `HOST is ${host}, which other machines can reach, but no authentication is set up: whoever reaches the API may do ` +
        'everything. Use 127.0.0.1, localhost or ::1, or set up COPPICE_API_KEYS or COPPICE_JWT_…',
    )
    this.name = 'InsecureHostError'
  }
}

const LOOPBACK = new Set(['127.0.0.1', 'localhost', '::1'])

/** Whether only this machine can reach a server that is bound to this host. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(host.toLowerCase())
}

/**
 * Whether a request's Host header names this machine. A page of another site whose name was made to resolve to 127.0.0.1
 * (DNS rebinding) sends its own name here, and is same-origin in the browser's eyes.
 */
export function namesLoopback(hostHeader: string | undefined): boolean {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::\d{1,5})?$/.exec(hostHeader ?? '')
  const host = match?.[1] ?? match?.[2]
  return host !== undefined && isLoopback(host)
}

/** Whether a request's Origin header, if any, is of the very host that the request was sent to. */
export function isSameOrigin(origin: string | undefined, hostHeader: string | undefined): boolean {
  if (origin === undefined) return true
  return URL.canParse(origin) && new URL(origin).host === hostHeader?.toLowerCase()
}
