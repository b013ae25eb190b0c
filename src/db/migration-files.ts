import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { MigrationFilesError } from './migration-errors.ts'

/** One file of statements that takes the schema from the version before to `version`. */
export interface MigrationFile {
  /** 1 for `0001_…`, without gaps. */
  readonly version: number
  /** The file's name without `.sql`. */
  readonly name: string
  readonly sql: string
  /** SHA-256 of the text, in hex. */
  readonly checksum: string
}

/** The folder of the package; `src/db` and `dist/db` are equally far from it. */
export const MIGRATIONS = fileURLToPath(new URL('../../migrations', import.meta.url))

/**
 * Reads the migrations of a folder, in order: files named `NNNN_name.sql`, numbered from 1 without gaps.
 * @throws MigrationFilesError
 */
export async function readMigrations(directory: string = MIGRATIONS): Promise<MigrationFile[]> {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.sql')).sort()
  return await Promise.all(
    files.map(async (file, index) => {
      const version = Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(file)?.[1])
      if (version !== index + 1) {
        const expected = String(index + 1).padStart(4, '0')
        throw new MigrationFilesError(`${path.join(directory, file)} should be named ${expected}_name.sql`)
      }
      // A checkout may have turned the ends of lines around.
      const sql = (await readFile(path.join(directory, file), 'utf8')).replaceAll('\r\n', '\n')
      return {
        version,
        name: path.basename(file, '.sql'),
        sql,
        checksum: createHash('sha256').update(sql).digest('hex'),
      }
    }),
  )
}
