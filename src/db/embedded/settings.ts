/** What a server is started with, on its command line, so that a change here reaches data folders made long ago. */
export interface ServerSettings {
  readonly port: number
  /** False gives up safety against a crash of the machine for speed: for data that are thrown away. */
  readonly durable: boolean
  /** Settings of PostgreSQL that go before ours. */
  readonly overrides: Readonly<Record<string, string>>
  /** Recorded in the running server as `coppice.launch`: tells one start of a server from another. */
  readonly launch: string
  /** Recorded as `coppice.starter`: the process at whose end the server ends. */
  readonly starter: number
}

/** Arguments of `postgres`, after its data folder. */
export function serverArguments(settings: ServerSettings): string[] {
  const merged: Record<string, string> = {
    // Errors of statements reach the client, which logs what it cares about: in this order of levels `log` leaves out
    // warnings and errors, and so keeps the file small, but not starts, crashes and fatal errors.
    log_min_messages: 'log',
    log_checkpoints: 'off',
    lc_messages: 'C',
    timezone: 'UTC',
    log_timezone: 'UTC',
    max_connections: '200',
    shared_buffers: '128MB',
    jit: 'off',
    ...(settings.durable ? DURABLE : FAST),
    ...settings.overrides,
    listen_addresses: '127.0.0.1',
    // A path to a socket has at most 107 bytes, which a data folder deep in a tree exceeds; TCP is enough.
    unix_socket_directories: '',
    logging_collector: 'off',
    log_destination: 'stderr',
    port: String(settings.port),
    'coppice.launch': settings.launch,
    'coppice.starter': String(settings.starter),
  }
  return Object.entries(merged).flatMap(([name, value]) => ['-c', `${name}=${value}`])
}

const DURABLE = { fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on' }
const FAST = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }
