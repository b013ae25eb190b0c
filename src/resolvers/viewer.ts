/** What a caller may do; each role includes the ones before it. */
export const ROLES = ['viewer', 'operator', 'admin'] as const
export type Role = (typeof ROLES)[number]

/** Who asks. */
export interface Viewer {
  /** Name of the key or subject of the token; `anonymous` where no authentication is set up. Actor of what they do. */
  readonly name: string
  readonly role: Role
}

/** Where no authentication is set up, whoever reaches the server (from this machine only) may do everything. */
export const ANONYMOUS: Viewer = { name: 'anonymous', role: 'admin' }

/** No valid key or token: a top-level error. Says no more than the caller knows. */
export class UnauthenticatedError extends Error {
  readonly code = 'UNAUTHENTICATED'

  constructor(message: string) {
    super(message)
    this.name = 'UnauthenticatedError'
  }
}

/** The role does not allow it: a top-level error. */
export class ForbiddenError extends Error {
  readonly code = 'FORBIDDEN'

  constructor(role: Role) {
    super(`This needs the role ${role.toUpperCase()}.`)
    this.name = 'ForbiddenError'
  }
}

/** Whether a caller's role includes another. */
export function includesRole(viewer: Viewer, role: Role): boolean {
  return ROLES.indexOf(viewer.role) >= ROLES.indexOf(role)
}
