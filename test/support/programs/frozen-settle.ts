import { openDatabase } from '../../../src/db/database.ts'
import { statement } from '../../../src/db/statement.ts'
import { transaction } from '../../../src/db/transaction.ts'
import { lockJobs, lockTreeShared } from '../../../src/engine/locks.ts'

// Takes the locks of a settle and stops between two of its statements, for a test that freezes it just then:
// `frozen-settle.ts CONNECTION_STRING TREE_ID JOB_ID…`. Prints what became of the transaction if it is let go on.

const [, , connectionString, treeId, ...jobIds] = process.argv as [string, string, string, string, ...string[]]
const db = openDatabase({ connectionString })
const say = (line: string) => process.stdout.write(`${line}\n`)

await transaction(db, async (tx) => {
  await lockTreeShared(tx, treeId)
  await lockJobs(tx, jobIds)
  say('locked')
  await new Promise((resolve) => process.stdin.once('data', resolve))
  await tx.query(
    statement('test.settle', (t) => `update ${t.job} set result = '"late"' where id = any($1::uuid[])`),
    [jobIds],
  )
}).then(
  () => say('committed'),
  (error) => say(`refused ${error.code ?? error.message}`),
)
await db.close()
process.exit(0)
