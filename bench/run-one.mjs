import { round } from './measure.mjs'
import { ENTRIES, settingsFor } from './peers/index.mjs'
import { runWorkload, scaled } from './workloads.mjs'

// One workload with one peer, in a process of its own; started by bench.mjs, which hands it the task as JSON. Prints one
// line of JSON.

const { name, workload, scale, addresses } = JSON.parse(process.argv[2])
const entry = ENTRIES.find((one) => one.name === name)
const { parents, ...settings } = settingsFor(entry, workload)
const size = scaled(workload, scale)
if (parents !== undefined) size.parents = Math.min(parents, size.parents)
const { open } = await import(`./peers/${entry.module}.mjs`)

const before = process.cpuUsage()
const figures = await runWorkload(workload, (handlers) => open(addresses, settings, handlers), size)
const { user, system } = process.cpuUsage(before)
const cpuSeconds = round((user + system) / 1e6, 2)
process.stdout.write(
  `${JSON.stringify({ workload, peer: name, settings, ...figures, cpuSeconds, node: process.version })}\n`,
)
// Some clients leave timers behind.
process.exit(0)
