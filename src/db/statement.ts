/** Quoted, qualified names of Coppice's tables in the schema of one installation. */
export interface TableNames {
  readonly job: string
  readonly jobEvent: string
  readonly wakeReceipt: string
  readonly wakeMark: string
  readonly worker: string
  readonly assignee: string
  readonly feedEpoch: string
  readonly feedFloor: string
  readonly maintenance: string
  readonly migration: string
}

/** A named SQL statement. The name goes along as a comment, so that `pg_stat_activity` tells what runs. */
export interface Statement<Row> {
  readonly name: string
  readonly text: (tables: TableNames) => string
  /** Never set: carries the row type. */
  readonly row?: Row
}

/**
 * Defines a statement: `text` gets the table names and returns SQL with `$1 …` parameters.
 *
 * @example
 * const findWorker = statement<{ id: string }>('worker.find', (t) => `select id from ${t.worker} where id = $1`)
 */
export function statement<Row = never>(name: string, text: (tables: TableNames) => string): Statement<Row> {
  return { name, text }
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
    worker: name('worker'),
    assignee: name('assignee'),
    feedEpoch: name('feed_epoch'),
    feedFloor: name('feed_floor'),
    maintenance: name('maintenance'),
    migration: name('migration'),
  }
}
