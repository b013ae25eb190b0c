/**
 * A `pg_snapshot`: which transactions' work is visible. All below xmin, and those below xmax that are not in xip. Xids
 * are 64 bits wide. Snapshots of one primary are totally ordered: what is visible in one is visible in every later one.
 */
export interface Snapshot {
  readonly xmin: bigint
  readonly xmax: bigint
  /** Ascending; at least xmin, below xmax. */
  readonly xip: readonly bigint[]
}

export const MAX_XID = 2n ** 64n - 1n

/** Reads PostgreSQL's text of a snapshot, `xmin:xmax:xip,xip`; undefined if it is none. */
export function parseSnapshot(text: string): Snapshot | undefined {
  const parts = /^(\d{1,20}):(\d{1,20}):((?:\d{1,20}(?:,\d{1,20})*)?)$/.exec(text)
  if (parts === null) return undefined
  const snapshot = {
    xmin: BigInt(parts[1]!),
    xmax: BigInt(parts[2]!),
    xip: parts[3] === '' ? [] : parts[3]!.split(',').map(BigInt),
  }
  return isSnapshot(snapshot) ? snapshot : undefined
}

/** The text that PostgreSQL reads. */
export function formatSnapshot(snapshot: Snapshot): string {
  return `${snapshot.xmin}:${snapshot.xmax}:${snapshot.xip.join(',')}`
}

/** Whether PostgreSQL would take it: in order, within bounds. */
export function isSnapshot({ xmin, xmax, xip }: Snapshot): boolean {
  if (xmin < 1n || xmax < xmin || xmax > MAX_XID) return false
  let least = xmin
  for (const xid of xip) {
    if (xid < least || xid >= xmax) return false
    least = xid + 1n
  }
  return true
}

/** Whether `later` shows all that `earlier` shows, for two snapshots of one primary. */
export function covers(later: Snapshot, earlier: Snapshot): boolean {
  if (later.xmax !== earlier.xmax) return later.xmax > earlier.xmax
  const open = new Set(earlier.xip)
  return later.xip.every((xid) => open.has(xid))
}
