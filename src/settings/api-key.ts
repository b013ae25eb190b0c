import { z } from 'zod'
import { ROLES, type Role } from '../resolvers/viewer.ts'
import { text } from './parsers.ts'

/** A key of the API as it is stored: without the key itself. */
export interface ApiKeyEntry {
  /** Who it belongs to: the actor of what is done with it. */
  readonly name: string
  readonly role: Role
  /** SHA-256 of the key, as 64 hexadecimal digits. */
  readonly hash: string
}

/** What names of keys are made of. */
export const KEY_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$/

/** Whether a word names a role. */
export function isRole(word: string): word is Role {
  return (ROLES as readonly string[]).includes(word)
}

/** An entry of COPPICE_API_KEYS. */
export function formatApiKey({ name, role, hash }: ApiKeyEntry): string {
  return `${name}:${role}:${hash}`
}

/** The entries of COPPICE_API_KEYS: `name:role:hash`, separated by commas, each name once. */
export const apiKeys = text.transform((value, context): readonly ApiKeyEntry[] => {
  const entries = value.split(',').map((entry) => parseApiKey(entry.trim()))
  const names = new Set(entries.map((entry) => entry?.name))
  if (entries.includes(undefined) || names.size < entries.length) {
    context.addIssue('not a list of keys')
    return z.NEVER
  }
  return entries as ApiKeyEntry[]
})

function parseApiKey(entry: string): ApiKeyEntry | undefined {
  const [name = '', word = '', hash = '', ...rest] = entry.split(':')
  const role = word.toLowerCase()
  if (rest.length > 0 || !KEY_NAME.test(name) || !isRole(role) || !/^[0-9a-f]{64}$/i.test(hash)) return undefined
  return { name, role, hash: hash.toLowerCase() }
}
