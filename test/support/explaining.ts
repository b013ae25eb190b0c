import { readFile } from 'node:fs/promises'
import { expect } from 'vitest'
import type { JobRegistry } from '../../src/engine/definition/job-registry.ts'
import { createJobRegistry } from '../../src/engine/definition/job-registry.ts'
import { explainJobs } from '../../src/engine/explain/explain.ts'
import type { Explanation } from '../../src/engine/explain/explanation.ts'
import type { AnyDefinition } from '../../src/index.ts'
import type { Verbs } from './verbs.ts'

/** What tests of explain do to a database, and ask of it. */
export interface Explaining {
  /** The explanations of a job; their facts have the keys that docs/explain.md says. */
  explain(id: string, jobs?: JobRegistry): Promise<Explanation[]>
  /** The reasons of a job, in order. */
  reasons(id: string, jobs?: JobRegistry): Promise<string[]>
  /** Makes the one worker of the verbs known for these types, queues and so on. */
  worker(columns: Record<string, unknown>): Promise<void>
  /** Changes a job's row by SQL, past every verb. */
  set(id: string, columns: Record<string, unknown>): Promise<void>
}

/** What a process knows that defines these types. */
export const knowing = (...definitions: AnyDefinition[]) => createJobRegistry(definitions)

/** Explain, on the database of some verbs. */
export function explaining(v: Verbs): Explaining {
  const update = async (table: string, id: string, columns: Record<string, unknown>) => {
    const names = Object.keys(columns)
    const set = names.map((name, index) => `${name} = $${index + 2}`).join(', ')
    await v.test.pool.query(`update ${v.test.schema}.${table} set ${set} where id = $1`, [
      id,
      ...Object.values(columns),
    ])
  }
  const explain: Explaining['explain'] = async (id, jobs = knowing()) => {
    const explanations = (await explainJobs(v.db, [id], { jobs })).get(id)!
    const documented = await documentedFacts()
    for (const { reason, facts } of explanations) {
      expect(Object.keys(facts).sort(), reason).toEqual([...documented.get(reason)!].sort())
    }
    return explanations
  }
  return {
    explain,
    reasons: async (id, jobs) => (await explain(id, jobs)).map(({ reason }) => reason),
    worker: (columns) => update('worker', v.workerId, columns),
    set: (id, columns) => update('job', id, columns),
  }
}

/** A moment so many ms from now; the test and its database share a clock. */
export const fromNow = (ms: number) => new Date(Date.now() + ms)

/** The keys of facts by reason, as docs/explain.md has them in its table. */
export async function documentedFacts(): Promise<Map<string, string[]>> {
  const text = await readFile(new URL('../../docs/explain.md', import.meta.url), 'utf8')
  const rows = text.matchAll(/^\| `([A-Z_]+)` +\| `([^`]+)`/gm)
  return new Map([...rows].map(([, reason, keys]) => [reason!.toLowerCase(), keys!.split(' ')]))
}
