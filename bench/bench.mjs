import { execFile } from 'node:child_process'
import { appendFile, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { ENTRIES } from './peers/index.mjs'
import { startServers } from './servers.mjs'
import { summary } from './summary.mjs'
import { SIZES } from './workloads.mjs'

// npm run bench: every workload with every peer, round by round, so that what the machine does in one minute falls on
// all. Writes one JSON line a run, and the table of medians and targets.

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    scale: { type: 'string', default: '1' },
    workloads: { type: 'string', default: Object.keys(SIZES).join(',') },
    peers: { type: 'string', default: '' },
    out: { type: 'string', default: 'results.jsonl' },
    timeout: { type: 'string', default: '120' },
  },
})
const workloads = values.workloads.split(',')
const chosen = values.peers === '' ? ENTRIES : ENTRIES.filter(({ name, module }) => matches(name) || matches(module))
const scale = Number(values.scale)

function matches(name) {
  return values.peers.split(',').includes(name)
}

const runNode = promisify(execFile)
const servers = await startServers()
try {
  const entries = chosen.filter((entry) => {
    if (entry.needs !== 'redis' || servers.redis) return true
    console.log(`Left out, for redis-server is not installed: ${entry.name}`)
    return false
  })
  const machine = { cpus: os.cpus().length, model: os.cpus()[0]?.model, memory: os.totalmem(), node: process.version }
  console.log(JSON.stringify({ ...(await servers.versions()), machine }))
  await writeFile(values.out, '')
  const results = []
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const workload of workloads) {
      for (const entry of entries.filter((one) => one.workloads.includes(workload))) {
        const result = { round, ...(await runOne(entry, workload)), load: os.loadavg()[0] }
        results.push(result)
        await appendFile(values.out, `${JSON.stringify(result)}\n`)
        console.log(JSON.stringify(result))
      }
    }
  }
  console.log(`\n${summary(results)}`)
} finally {
  await servers.stop()
}

async function runOne(entry, workload) {
  const addresses = { postgres: await servers.freshDatabase(), redis: servers.redis }
  const task = JSON.stringify({ name: entry.name, workload, scale, addresses })
  const program = path.join(import.meta.dirname, 'run-one.mjs')
  try {
    const { stdout, stderr } = await runNode(process.execPath, [program, task], {
      timeout: Number(values.timeout) * 1000,
      killSignal: 'SIGKILL',
    })
    if (stderr !== '') console.error(stderr)
    return JSON.parse(stdout)
  } catch (error) {
    console.error(error.stderr ?? error)
    return { workload, peer: entry.name, failed: error.killed ? 'timeout' : String(error.code) }
  }
}
