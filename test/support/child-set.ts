import type { Database } from '../../src/db/database.ts'
import { statement } from '../../src/db/statement.ts'
import { childSets } from '../../src/engine/child-set.ts'

/** The child set that a waiting parent would be woken for now, as the engine computes it; undefined: it would not be. */
export async function childSetOf(db: Database, id: string): Promise<{ wave: number; key: string } | undefined> {
  const [set] = await db.query(readChildSet, [[id]])
  return set
}

const readChildSet = statement<{ wave: number; key: string }>(
  'test.child-set',
  (t) => `with ${childSets(t)} select wave, child_set_key as key from child_set`,
)
