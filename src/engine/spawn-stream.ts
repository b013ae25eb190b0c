import { type InputIssue, ValidationError } from './errors.ts'
import type { NewJob } from './job.ts'
import { type KnownTypes, type PreparedJob, prepareJobs } from './prepare.ts'
import type { SpawnedChunk } from './spawn-chunk.ts'

/** What became of a stream of children. */
export type StreamedChildren = SpawnedChunk

/** Anything that gives jobs one by one. */
export type JobStream = AsyncIterable<NewJob> | Iterable<NewJob>

/** A chunk is written when it holds so many jobs, those in the trees of its children included. */
const CHUNK_JOBS = 500
/** Or so much JSON, in characters. */
const CHUNK_TEXT = 4 * 1024 * 1024

/** What the spawning of a stream goes through. */
export interface StreamTarget {
  readonly known: KnownTypes
  /** Throws when the attempt is over. */
  check(): void
  write(chunk: readonly PreparedJob[]): Promise<SpawnedChunk>
}

/** Whether something can be iterated and is no text. */
export function isJobStream(value: unknown): value is JobStream {
  return typeof value === 'object' && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value)
}

/**
 * Takes children from a stream and writes them chunk by chunk. The next child is asked for when there is room: a chunk is
 * all that is held, however long the stream.
 *
 * @throws {ValidationError} for the first child that is wrong or has no key, with its position in the stream. Nothing of
 *   its chunk is written; the chunks before are there.
 */
export async function spawnStream(stream: JobStream, target: StreamTarget): Promise<StreamedChildren> {
  const total: StreamedChildren = { created: 0, existing: 0 }
  let chunk: PreparedJob[] = []
  let jobs = 0
  let text = 0
  let position = 0
  const write = async () => {
    target.check()
    const { created, existing } = await target.write(chunk)
    total.created += created
    total.existing += existing
    chunk = []
    jobs = 0
    text = 0
  }
  for await (const job of stream) {
    target.check()
    const child = await prepareKeyed(job, position++, target.known)
    const size = sizeOf(child)
    chunk.push(child)
    jobs += size.jobs
    text += size.text
    if (jobs >= CHUNK_JOBS || text >= CHUNK_TEXT) await write()
  }
  if (chunk.length > 0) await write()
  return total
}

async function prepareKeyed(job: NewJob, position: number, known: KnownTypes): Promise<PreparedJob> {
  try {
    const [child] = await prepareJobs([job], known)
    if (child!.key === null) throw ValidationError.of('0.key', 'must be given for each child of a stream')
    return child!
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error
    throw new ValidationError(error.issues.map((issue) => at(issue, position)))
  }
}

/** An issue's path begins with the position in its list. */
function at({ path: [, ...rest], message }: InputIssue, position: number): InputIssue {
  return { path: [String(position), ...rest], message }
}

function sizeOf(job: PreparedJob): { jobs: number; text: number } {
  const size = { jobs: 1, text: job.payload.length + job.metadata.length }
  for (const child of job.children ?? []) {
    const { jobs, text } = sizeOf(child)
    size.jobs += jobs
    size.text += text
  }
  return size
}
