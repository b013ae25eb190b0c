import { buildSchema, findBreakingChanges, findDangerousChanges } from 'graphql'

/** What a change of the schema means for its clients, a line each: what breaks them, and what may surprise them. */
export function schemaChanges(before: string, after: string): string[] {
  const [old, now] = [buildSchema(before), buildSchema(after)]
  return [
    ...findBreakingChanges(old, now).map(({ description }) => `breaking: ${description}`),
    ...findDangerousChanges(old, now).map(({ description }) => `dangerous: ${description}`),
  ]
}
