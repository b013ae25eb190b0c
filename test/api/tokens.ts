import { createHmac, type KeyObject } from 'node:crypto'
import { type JWTPayload, SignJWT } from 'jose'

/** A token of these claims that ends in a minute unless they say otherwise. */
export async function tokenOf(key: KeyObject | Uint8Array, alg: string, claims: JWTPayload = {}): Promise<string> {
  return new SignJWT({ sub: 'ann', role: 'viewer', exp: inSeconds(60), ...claims })
    .setProtectedHeader({ alg })
    .sign(key)
}

/** A token that no library would make: any header, any signature. */
export function forgedToken(header: object, claims: object, signedWith?: string | Buffer): string {
  const body = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
  const signature = signedWith === undefined ? '' : createHmac('sha256', signedWith).update(body).digest('base64url')
  return `${body}.${signature}`
}

/** An instant as claims have it. */
export function inSeconds(seconds: number): number {
  return Math.floor(Date.now() / 1000) + seconds
}
