import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { migrate } from '../../src/db/migrate.ts'
import { withDatabase } from './with-database.ts'

/** What every test file is told about the server of the run. */
export interface TestServer {
  /** As a role that may create databases. */
  readonly connectionString: string
  /** A migrated database to clone. */
  readonly template: string
  /** The schema of Coppice in it. */
  readonly schema: string
}

declare module 'vitest' {
  export interface ProvidedContext {
    testServer: TestServer
  }
}

/**
 * Starts the one PostgreSQL of the run (or uses the server TEST_DATABASE_URL names) and prepares the database that test
 * files clone.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { connectionString, close } = await startServer()
  const template = `coppice_template_${randomBytes(6).toString('hex')}`
  const schema = 'coppice'
  const admin = async (sql: string) => {
    const client = new pg.Client({ connectionString })
    await client.connect()
    await client.query(sql).finally(() => client.end())
  }
  const teardown = async () => {
    await admin(`drop database if exists ${template} with (force)`).finally(close)
  }
  try {
    await admin(`create database ${template}`)
    await migrate({ connectionString: withDatabase(connectionString, template), schema })
  } catch (error) {
    await teardown().catch(() => {})
    throw error
  }
  project.provide('testServer', { connectionString, template, schema })
  return teardown
}

async function startServer(): Promise<{ connectionString: string; close: () => Promise<void> }> {
  const given = process.env.TEST_DATABASE_URL
  if (given !== undefined && given !== '') return { connectionString: given, close: async () => {} }
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-test-'))
  const server = await startEmbeddedServer({ dataDir: folder, durable: false })
  const close = async () => {
    await server.stop()
    await removeEmbeddedData(folder)
    await rm(folder, { recursive: true, force: true })
  }
  return { connectionString: server.connectionString, close }
}
