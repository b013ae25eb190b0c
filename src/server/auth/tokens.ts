import { errors, type JWTPayload, jwtVerify } from 'jose'
import { ROLES, type Role, UnauthenticatedError } from '../../resolvers/viewer.ts'
import { isRole } from '../../settings/api-key.ts'
import { NoRoleError } from './errors.ts'
import type { Session } from './session.ts'
import { type TokenKeyOptions, tokenKeys } from './token-keys.ts'

/** How tokens (JWT) are checked. */
export interface TokenOptions extends TokenKeyOptions {
  readonly issuer?: string | undefined
  readonly audience?: string | undefined
  /** Claim that holds the role, or a list with it; dots lead into objects. Default `role`. */
  readonly roleClaim?: string | undefined
}

/** Longest name of a subject: it is written into every event of what they do. */
const MAX_NAME_LENGTH = 200
/** How much the clock of whoever issues tokens may be ahead, in seconds: a token is not refused for being too new. */
const CLOCK_TOLERANCE_S = 5

const EXPIRED = 'The token has expired.'

/**
 * Checks tokens: signature by a pinned algorithm, issuer, audience, times, and an expiry, which they must have.
 *
 * @returns who a token is of, until when; rejects with UnauthenticatedError, NoRoleError or KeysUnavailableError.
 */
export function createTokenCheck(options: TokenOptions): (token: string) => Promise<Session> {
  const keys = tokenKeys(options)
  const { issuer, audience, roleClaim = 'role' } = options
  const verification = {
    algorithms: [...keys.algorithms],
    requiredClaims: ['exp', 'sub'],
    clockTolerance: CLOCK_TOLERANCE_S,
    ...(issuer !== undefined && { issuer }),
    ...(audience !== undefined && { audience }),
  }
  return async (token) => {
    const payload = await jwtVerify(token, keys.find, verification).then(
      (verified) => verified.payload,
      (error: unknown) => {
        if (!(error instanceof errors.JOSEError) && !(error instanceof TypeError)) throw error
        throw new UnauthenticatedError(error instanceof errors.JWTExpired ? EXPIRED : 'The token is not valid.')
      },
    )
    const expiresAt = payload.exp! * 1000
    if (expiresAt <= Date.now()) throw new UnauthenticatedError(EXPIRED)
    const role = roleOf(payload, roleClaim)
    if (role === undefined) throw new NoRoleError(roleClaim)
    return { viewer: { name: nameOf(payload), role }, expiresAt }
  }
}

function nameOf({ sub }: JWTPayload): string {
  if (typeof sub !== 'string' || sub === '' || sub.length > MAX_NAME_LENGTH || /\p{Cc}/u.test(sub)) {
    throw new UnauthenticatedError('The token is not valid: its subject is not a name.')
  }
  return sub
}

/** The highest role that a claim names. */
function roleOf(payload: JWTPayload, claim: string): Role | undefined {
  const value = claimOf(payload, claim)
  const words = (Array.isArray(value) ? value : [value])
    .filter((word) => typeof word === 'string')
    .map((word) => word.toLowerCase())
  return words.filter(isRole).sort((a, b) => ROLES.indexOf(b) - ROLES.indexOf(a))[0]
}

/** A claim by its name, which may have dots in it, or else by the path that the dots make of it. */
function claimOf(payload: JWTPayload, claim: string): unknown {
  if (Object.hasOwn(payload, claim)) return payload[claim]
  let value: unknown = payload
  for (const name of claim.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined
    value = (value as Record<string, unknown>)[name]
  }
  return value
}
