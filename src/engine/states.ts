/** The state machine: every state, the one definition of terminal, and the one table of legal moves. */

export const JOB_STATES = ['queued', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled'] as const
export type JobState = (typeof JOB_STATES)[number]

export const TERMINAL_STATES = ['completed', 'failed', 'cancelled'] as const
export type TerminalState = (typeof TERMINAL_STATES)[number]

/** Active: everything that is not terminal. */
export const ACTIVE_STATES = ['queued', 'running', 'waiting', 'paused'] as const
export type ActiveState = (typeof ACTIVE_STATES)[number]

export const PHASES = ['ingest', 'aggregate'] as const
export type Phase = (typeof PHASES)[number]

/** The legal moves. A move that is not here is refused; a move that loses a race does nothing and says so. */
export const LEGAL_MOVES: Readonly<Record<JobState, readonly JobState[]>> = {
  queued: ['running', 'waiting', 'paused', 'failed', 'cancelled'],
  running: ['waiting', 'completed', 'failed', 'queued', 'paused', 'cancelled'],
  waiting: ['queued', 'paused', 'failed', 'cancelled'],
  paused: ['queued', 'waiting', 'failed', 'cancelled'],
  completed: ['queued'],
  failed: ['queued', 'waiting'],
  cancelled: ['queued', 'waiting'],
}

/** Whether a state is final: the job has ended and settles its parent's edge. */
export function isTerminal(state: JobState): state is TerminalState {
  return (TERMINAL_STATES as readonly JobState[]).includes(state)
}

/** Whether a job may go from one state to another. */
export function isLegalMove(from: JobState, to: JobState): boolean {
  return LEGAL_MOVES[from].includes(to)
}

/** A list of states as SQL literals, for `state in (…)`. */
export function stateList(states: readonly JobState[]): string {
  return states.map((state) => `'${state}'`).join(', ')
}

/** SQL literals of the terminal states. */
export const TERMINAL_SQL = stateList(TERMINAL_STATES)

/** SQL literals of the active states. */
export const ACTIVE_SQL = stateList(ACTIVE_STATES)
