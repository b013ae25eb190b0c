import type { Database } from '../db/database.ts'
import { archiveJob, unarchiveJob } from './archive.ts'
import { setAssignee } from './assignee.ts'
import { cancelJob, deleteJob, failFailingParents } from './cascade.ts'
import type { JobRegistry } from './definition/job-registry.ts'
import type { ActorOptions, Engine, SteerOptions } from './engine.ts'
import { NotFoundError } from './errors.ts'
import { orphans, stuckParents } from './explain/dry-runs.ts'
import { explainJobs } from './explain/explain.ts'
import { parseJobId } from './ids.ts'
import { checkedOptions } from './input/check.ts'
import { PAGE_ARGS } from './input/options.ts'
import { sweepOrphans } from './orphan-sweep.ts'
import { pauseJob, resumeJob } from './pause.ts'
import { prepareJobs } from './prepare.ts'
import { readJob } from './read-job.ts'
import { ALL_HEAVY } from './reads/columns.ts'
import { type PageArgs, pageRequest } from './reads/page.ts'
import { retryJob } from './reopen.ts'
import { rewakeParent } from './rewake.ts'
import { spawnChildren } from './spawn.ts'

/** What an engine does to jobs that are there, and says of them. */
export type EngineVerbs = Pick<
  Engine,
  | 'job'
  | 'explain'
  | 'stuckParents'
  | 'orphans'
  | 'spawnChildren'
  | 'deleteJob'
  | 'cancelJob'
  | 'pauseJob'
  | 'resumeJob'
  | 'retryJob'
  | 'rewakeParent'
  | 'archiveJob'
  | 'unarchiveJob'
  | 'sweepOrphans'
  | 'setAssignee'
>

/** What the verbs need of an engine. */
export interface VerbParts {
  db: Database
  jobs: JobRegistry
  /** Says in our own words that the database cannot be reached. */
  reach<T>(run: () => Promise<T>): Promise<T>
  /** The same, and tells everybody after its commit. */
  verb<T>(run: () => Promise<T>): Promise<T>
  /** Who does it. Checks the options. */
  actorOf(given?: ActorOptions): { actor: string }
  /** The options, checked, with the actor. */
  steering<Options extends SteerOptions>(given?: Options): Options & { actor: string }
  /** So many jobs were cancelled by a sweep. */
  swept(count: number): void
}

/** The verbs of an engine. What comes in is checked before anything is done. */
export function createEngineVerbs(parts: VerbParts): EngineVerbs {
  const { db, jobs, reach, verb, actorOf, steering } = parts
  const pageOf = (given: PageArgs | undefined) => pageRequest(checkedOptions(PAGE_ARGS, given) ?? {})

  /** A verb on a subtree: parents that are to fail by it do so in transactions of their own. */
  async function subtreeVerb<T extends { failing: string[] }>(
    given: SteerOptions | undefined,
    run: (options: SteerOptions & { actor: string }) => Promise<T>,
  ): Promise<T> {
    const options = steering(given)
    const result = await verb(() => run(options))
    if (result.failing.length > 0) {
      await verb(() => failFailingParents(db, result.failing, { actor: options.actor }))
    }
    return result
  }

  return {
    job: (id) => reach(async () => readJob(db, parseJobId(id))),
    async explain(given) {
      const id = parseJobId(given)
      const explanations = (await reach(() => explainJobs(db, [id], { jobs }))).get(id)
      if (!explanations) throw new NotFoundError(id)
      return explanations
    },
    stuckParents: (page) => reach(async () => stuckParents(db, pageOf(page), ALL_HEAVY)),
    orphans: (page) => reach(async () => orphans(db, pageOf(page), ALL_HEAVY)),
    async spawnChildren(given, children, options) {
      const parentId = parseJobId(given)
      const by = actorOf(options)
      const prepared = await prepareJobs(children, jobs)
      return verb(() => spawnChildren(db, parentId, prepared, by))
    },
    deleteJob: (id, given) => subtreeVerb(given, async (options) => deleteJob(db, parseJobId(id), options)),
    cancelJob: (id, given) => subtreeVerb(given, async (options) => cancelJob(db, parseJobId(id), options)),
    pauseJob: (id, given) => verb(async () => pauseJob(db, parseJobId(id), steering(given))),
    resumeJob: (id, given) => verb(async () => resumeJob(db, parseJobId(id), steering(given))),
    retryJob: (id, given) => verb(async () => retryJob(db, parseJobId(id), steering(given))),
    rewakeParent: (id, given) => verb(async () => rewakeParent(db, parseJobId(id), steering(given))),
    archiveJob: (id, given) => verb(async () => archiveJob(db, parseJobId(id), steering(given))),
    unarchiveJob: (id, given) => verb(async () => unarchiveJob(db, parseJobId(id), steering(given))),
    async sweepOrphans(given) {
      const report = await verb(async () => sweepOrphans(db, actorOf(given)))
      parts.swept(report.cancelled)
      return report
    },
    setAssignee: (id, status, given) => verb(async () => setAssignee(db, id, status, actorOf(given))),
  }
}
