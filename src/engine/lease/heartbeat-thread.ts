/** Entry point of the heartbeat thread: a beater between the messages of the main thread. */
import { parentPort, workerData } from 'node:worker_threads'
import { createBeater } from './beater.ts'
import type { ThreadInput, ToThread } from './messages.ts'

const port = parentPort
if (!port) throw new Error('heartbeat-thread runs in a worker thread only')

const beater = createBeater(workerData as ThreadInput, (message) => port.postMessage(message))
port.on('message', (message: ToThread) => beater.receive(message))
await beater.run()
// Nothing keeps the thread any more: it ends once its last message is out.
port.close()
