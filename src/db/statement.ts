/** Quoted, qualified names of Coppice's tables in the schema of one installation. */
export interface TableNames {
  readonly job: string
  readonly jobEvent: string
  readonly wakeReceipt: string
  readonly wakeMark: string
  readonly wakeCounter: string
  readonly worker: string
  readonly assignee: string
  readonly feedEpoch: string
  readonly feedFloor: string
  readonly feedMark: string
  readonly maintenance: string
  readonly migration: string
}

/** A named SQL statement. The name goes along as a comment, so that `pg_stat_activity` tells what runs. */
export interface Statement<Row> {
  readonly name: string
  readonly text: (tables: TableNames) => string
  /** Kept prepared by connections that lead to one backend: planned once, not for each run. */
  readonly prepared: boolean
  /** Never set: carries the row type. */
  readonly row?: Row
}

/**
 * Defines a statement: `text` gets the table names and returns SQL with `$1 …` parameters. `prepared` is for the few that
 * run all the time: their plan must be good for parameters of any size.
 *
 * @example
 * const findWorker = statement<{ id: string }>('worker.find', (t) => `select id from ${t.worker} where id = $1`)
 */
export function statement<Row = never>(
  name: string,
  text: (tables: TableNames) => string,
  { prepared = false }: { prepared?: boolean } = {},
): Statement<Row> {
  return { name, text, prepared }
}

/**
 * A condition on rows that are found by their ids, spelt so that it implies no partial index. Spelt openly it does, and
 * an index of which the statistics say that it is empty (of running jobs, taken at rest) looks cheaper than the primary
 * key: the planner then reads the whole of it for every id.
 */
export function unindexed(condition: string): string {
  return `coalesce(${condition}, false)`
}

/** Table names for a schema. The schema's name is quoted, so any identifier will do. */
export function tableNames(schema: string): TableNames {
  const quoted = `"${schema.replaceAll('"', '""')}"`
  const name = (table: string) => `${quoted}.${table}`
  return {
    job: name('job'),
    jobEvent: name('job_event'),
    wakeReceipt: name('wake_receipt'),
    wakeMark: name('wake_mark'),
    wakeCounter: name('wake_counter'),
    worker: name('worker'),
    assignee: name('assignee'),
    feedEpoch: name('feed_epoch'),
    feedFloor: name('feed_floor'),
    feedMark: name('feed_mark'),
    maintenance: name('maintenance'),
    migration: name('migration'),
  }
}
