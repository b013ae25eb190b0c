import { startEmbeddedServer } from '../../src/db/embedded/server.ts'

// A program with an embedded server, for tests that end it in every way: `embedded-host.ts DATA_DIR`. It prints one line
// of JSON for each line of the log and one when the server is ready, ignores Ctrl-C, and stops at the end of its input.

const say = (message: unknown) => process.stdout.write(`${JSON.stringify(message)}\n`)

process.on('SIGINT', () => say({ log: 'got SIGINT' }))
const server = await startEmbeddedServer({ dataDir: process.argv[2]!, log: (line) => say({ log: line }) })
const { connectionString, pid, port, joined } = server
say({ ready: { connectionString, pid, port, joined } })
process.stdin.resume().on('end', async () => {
  await server.stop()
  say({ stopped: true })
})
