import { readFile } from 'node:fs/promises'
import { pathToFileURL } from 'node:url'
import { median } from './measure.mjs'
import { ENTRIES } from './peers/index.mjs'
import { TITLES } from './workloads.mjs'

const OURS = 'coppice'

/** A table of medians, and what became of the targets, as Markdown. `results`: the lines of a run. */
export function summary(results) {
  const good = results.filter((result) => !result.failed)
  return [...table(good), '', ...targets(good), ...failures(results)].join('\n')
}

function table(results) {
  const columns = [
    ['peer', ({ peer }) => peer],
    ['W1 jobs/s', of('W1', 'jobsPerSecond')],
    ['enqueue jobs/s', of('W1', 'enqueuedPerSecond')],
    ['W2 jobs/s', of('W2', 'jobsPerSecond')],
    ['W3 jobs/s', of('W3', 'jobsPerSecond')],
    ['W4 p50 / p95 / p99 ms', wakes],
    ['CPU s of W1 / W2 / W3', cpu],
  ]
  const rows = ENTRIES.map(({ name }) => ({ peer: name, results: results.filter(({ peer }) => peer === name) }))
  return [
    ...Object.entries(TITLES).map(([workload, title]) => `- ${workload}: ${title}${sizeOf(results, workload)}`),
    '',
    line(columns.map(([title]) => title)),
    line(columns.map((_, index) => (index === 0 ? '---' : '--:'))),
    ...rows.filter((row) => row.results.length > 0).map((row) => line(columns.map(([, cell]) => cell(row)))),
  ]
}

function sizeOf(results, workload) {
  const one = results.find((result) => result.workload === workload)
  if (!one) return ' (not run)'
  return one.jobs ? ` (${number(one.jobs)})` : ` (${number(one.parents)} × ${number(one.children)})`
}

function of(workload, field) {
  return ({ results }) => spread(values(results, workload, field))
}

function wakes({ results }) {
  const medians = ['p50', 'p95', 'p99'].map((quantile) => medianOf(results, 'W4', ({ wakeMs }) => wakeMs[quantile]))
  return medians.includes(undefined) ? '–' : medians.map((value) => value.toFixed(1)).join(' / ')
}

function cpu({ results }) {
  return ['W1', 'W2', 'W3'].map((workload) => medianOf(results, workload, (r) => r.cpuSeconds) ?? '–').join(' / ')
}

/** The targets, as ratios within one run. */
function targets(results) {
  const own = results.filter(({ peer }) => peer === OURS)
  const ceilings = ENTRIES.filter(({ ceiling }) => ceiling).map(({ name }) => name)
  const rate = (workload, field) => medianOf(own, workload, (result) => result[field])
  const best = (workload, field) => {
    const peers = ENTRIES.map(({ name }) => name).filter((name) => name !== OURS && !ceilings.includes(name))
    const medians = peers.map((peer) => ({
      peer,
      value:
        medianOf(
          results.filter((result) => result.peer === peer),
          workload,
          (result) => result[field],
        ) ?? 0,
    }))
    return medians.reduce((a, b) => (b.value > a.value ? b : a), { peer: 'nobody', value: 0 })
  }
  const against = (title, workload, field, factor) => {
    const { peer, value } = best(workload, field)
    return ratio(`${title} against the best peer (${peer})`, rate(workload, field), value, factor)
  }
  const wake = medianOf(own, 'W4', ({ wakeMs }) => wakeMs.p50)
  const redisWake = medianOf(
    results.filter(({ peer }) => peer === 'BullMQ, Redis always'),
    'W4',
    ({ wakeMs }) => wakeMs.p50,
  )
  return [
    line(['target', 'figure', 'asked', 'met']),
    line(['---', '--:', '--:', '---']),
    against('W1', 'W1', 'jobsPerSecond', 1),
    against('W2', 'W2', 'jobsPerSecond', 2),
    against('W3', 'W3', 'jobsPerSecond', 2),
    ratio('W2 against our own W1', rate('W2', 'jobsPerSecond'), rate('W1', 'jobsPerSecond'), 0.7),
    against('bulk enqueue', 'W1', 'enqueuedPerSecond', 1),
    atMost('W4 p50, ms', wake, 4),
    atMost('W4 p50 against BullMQ, Redis always', wake && redisWake && wake / redisWake, 1.5),
  ]
}

function ratio(title, figure, base, asked) {
  if (!figure || !base) return line([title, '–', `≥ ${asked}`, 'not measured'])
  const value = figure / base
  return line([title, value.toFixed(2), `≥ ${asked}`, value >= asked ? 'yes' : '**no**'])
}

function atMost(title, figure, asked) {
  if (!figure) return line([title, '–', `≤ ${asked}`, 'not measured'])
  return line([title, figure.toFixed(2), `≤ ${asked}`, figure <= asked ? 'yes' : '**no**'])
}

function failures(results) {
  const failed = results.filter((result) => result.failed)
  return failed.length === 0
    ? []
    : ['', ...failed.map((r) => `Failed: ${r.peer}, ${r.workload}, round ${r.round}: ${r.failed}`)]
}

function values(results, workload, field) {
  return results
    .filter((result) => result.workload === workload)
    .map((result) => result[field])
    .filter((value) => value !== undefined)
}

function medianOf(results, workload, pick) {
  const picked = results.filter((result) => result.workload === workload).map(pick)
  return picked.length === 0 ? undefined : median(picked)
}

function spread(list) {
  if (list.length === 0) return '–'
  const middle = number(median(list))
  return list.length === 1 ? middle : `${middle} (${number(Math.min(...list))}–${number(Math.max(...list))})`
}

function number(value) {
  return Math.round(value).toLocaleString('en')
}

function line(cells) {
  return `| ${cells.join(' | ')} |`
}

// node summary.mjs results.jsonl
if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const text = await readFile(process.argv[2] ?? 'results.jsonl', 'utf8')
  console.log(
    summary(
      text
        .trim()
        .split('\n')
        .map((one) => JSON.parse(one)),
    ),
  )
}
