import { isTerminal, JOB_STATES, type JobState } from '../../engine/states.ts'
import { type Piece, printable, type Style } from './cells.ts'
import type { Outline, OutlineJob } from './outline.ts'

const STATE_STYLES: Record<JobState, Style> = {
  queued: 'dim',
  running: 'busy',
  waiting: 'calm',
  paused: 'strong',
  completed: 'good',
  failed: 'bad',
  cancelled: 'dim',
}

const STATE_MARKS: Record<JobState, string> = {
  queued: '·',
  running: '▶',
  waiting: '◌',
  paused: '‖',
  completed: '✔',
  failed: '✘',
  cancelled: '⊘',
}

/**
 * What a line says of one job, after the lines of the tree: mark, type, key or id, state, phase, progress, trouble. The
 * root's id is in the line over the tree already.
 */
export function describeJob(job: OutlineJob): Piece[] {
  const pieces: Piece[] = [
    { text: `${STATE_MARKS[job.state]} `, style: STATE_STYLES[job.state] },
    { text: printable(job.type), style: 'plain' },
    ...nameOf(job),
    { text: ` ${job.state}`, style: STATE_STYLES[job.state] },
  ]
  const add = (text: string, style: Style = 'dim') => pieces.push({ text: ` ${text}`, style })
  if (job.phase === 'aggregate' && !isTerminal(job.state)) add('aggregate', 'calm')
  if (job.wave > 1) add(`wave ${job.wave}`)
  if (job.childCount > 0 && job.openChildren > 0) {
    const settled = Math.max(0, job.childCount - job.openChildren)
    add(`${bar(settled / job.childCount)} ${number(settled)}/${number(job.childCount)}`, 'plain')
  } else if (job.childCount > 0) add(`${number(job.childCount)} ${job.childCount === 1 ? 'child' : 'children'}`)
  if (job.progress !== null && !isTerminal(job.state)) pieces.push(...describeProgress(job.progress))
  if (job.retryCount > 0 && !isTerminal(job.state)) add(`retry ${job.retryCount}/${job.maxRetries}`, 'bad')
  if (job.state === 'failed') add(printable([job.errorCode, job.error].filter(Boolean).join(' ')), 'bad')
  else if (job.state === 'cancelled' && job.cancelReason) add(printable(job.cancelReason))
  else if (job.retryCount > 0 && job.error && !isTerminal(job.state)) add(printable(job.error), 'bad')
  return pieces
}

function nameOf({ id, key, parentId }: OutlineJob): Piece[] {
  if (key !== null) return [{ text: ` ${printable(key)}`, style: 'strong' }]
  return parentId === null ? [] : [{ text: ` JB_${id}`, style: 'dim' }]
}

/** One line for several jobs: their number by state. */
export function describeRest(rest: ReadonlyMap<JobState, number>): Piece[] {
  const pieces = [...rest].map(([state, count], index): Piece => {
    const mark = index === 0 ? `${STATE_MARKS[state]} ` : ', '
    return { text: `${mark}${number(count)} ${state}`, style: STATE_STYLES[state] }
  })
  return pieces
}

/** The line over a tree: whose it is, how far it is, how long it has taken. */
export function describeTree({ root, counts, ageMs }: Outline): Piece[] {
  const done = counts.total - counts.open
  const pieces: Piece[] = [
    { text: bar(counts.total === 0 ? 1 : done / counts.total, 20), style: 'plain' },
    { text: ` ${number(done)}/${number(counts.total)} ${counts.total === 1 ? 'job' : 'jobs'}`, style: 'plain' },
    { text: ` ${age(ageMs)}`, style: 'dim' },
  ]
  for (const state of JOB_STATES) {
    if (counts[state] > 0) pieces.push({ text: ` ${number(counts[state])} ${state}`, style: STATE_STYLES[state] })
  }
  pieces.push({ text: ` JB_${root.id}`, style: 'dim' })
  return pieces
}

function describeProgress({ current, total, message }: NonNullable<OutlineJob['progress']>): Piece[] {
  const share = total !== undefined && total > 0 ? current / total : undefined
  const figures = total === undefined ? number(current) : `${number(current)}/${number(total)}`
  const text = [share === undefined ? '' : bar(share), figures, message ?? ''].filter(Boolean).map(printable).join(' ')
  return [{ text: ` ${text}`, style: 'busy' }]
}

/** A bar of `width` cells, filled to a share of 0 to 1. It looks full only when it is. */
export function bar(share: number, width = 10): string {
  const filled = Math.floor(Math.min(1, Math.max(0, share || 0)) * width)
  return '█'.repeat(filled) + '░'.repeat(width - filled)
}

function number(value: number): string {
  return value.toLocaleString('en')
}

/** `3.2 s`, `4:05`, `1:04:05`, `2 d 01:04:05`. */
export function age(ms: number): string {
  const seconds = Math.max(0, ms) / 1000
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  const whole = Math.floor(seconds)
  const two = (value: number) => String(value).padStart(2, '0')
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60]
  if (days > 0) return `${days} d ${two(hours)}:${two(minutes)}:${two(whole % 60)}`
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`
}
