/** An event as the log has it. */
export interface LoggedEvent {
  id: number
  jobId: string
  version: number
}

/** What was wrong with what a subscriber was told, in numbers of events. */
export interface Verdict {
  /** In the log and never told. */
  lost: number
  /** Told again. */
  doubled: number
  /** Told after a later event of the same job. */
  disordered: number
  /** Told and not in the log, as far as it was asked for. */
  strange: number
}

/** Compares what a subscriber was told, in the order of telling, with the log. */
export function judge(log: readonly LoggedEvent[], told: readonly number[]): Verdict {
  const logged = new Map(log.map((event) => [event.id, event]))
  const seen = new Set<number>()
  const versions = new Map<string, number>()
  const verdict: Verdict = { lost: 0, doubled: 0, disordered: 0, strange: 0 }
  for (const id of told) {
    const event = logged.get(id)
    if (event === undefined) verdict.strange++
    else if (seen.has(id)) verdict.doubled++
    else {
      seen.add(id)
      const last = versions.get(event.jobId)
      if (last !== undefined && last >= event.version) verdict.disordered++
      else versions.set(event.jobId, event.version)
    }
  }
  verdict.lost = log.length - seen.size
  return verdict
}

/** All verdicts in one. */
export function total(verdicts: readonly Verdict[]): Verdict {
  const sum = (name: keyof Verdict) => verdicts.reduce((so, verdict) => so + verdict[name], 0)
  return { lost: sum('lost'), doubled: sum('doubled'), disordered: sum('disordered'), strange: sum('strange') }
}
