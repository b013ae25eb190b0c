#!/usr/bin/env node
import { main } from './cli/main.ts'

// A reader that has seen enough, such as `head`, is no fault of ours.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit(0)
})

// Not everything that a command waits for would keep the process running by itself.
const alive = setInterval(() => {}, 2 ** 30)
await main(process.argv.slice(2))
clearInterval(alive)
// Whatever a command has left open shall not keep it from ending.
setTimeout(() => process.exit(), 5000).unref()
