import { SchemaNameError } from './migration-errors.ts'

/**
 * Whether a name may be that of Coppice's schema: an identifier of ASCII letters, digits and underscores, at most 63
 * bytes (PostgreSQL cuts longer ones), and none of PostgreSQL's own.
 */
export function isSchemaName(name: string): boolean {
  return /^[a-z_][a-z0-9_]{0,62}$/i.test(name) && !/^(pg_.*|information_schema)$/i.test(name)
}

/**
 * The name in double quotes, for use in SQL.
 * @throws SchemaNameError
 */
export function quoteSchemaName(name: string): string {
  if (!isSchemaName(name)) throw new SchemaNameError(name)
  return `"${name}"`
}
