export type { BackoffOptions } from './backoff.ts'
export {
  type Client,
  type ClientOptions,
  createClient,
  type EventKey,
  type JobKey,
  type ResumableOptions,
  type Watched,
  type WatchOptions,
} from './client.ts'
export {
  ClientError,
  ConnectionLostError,
  type GraphQLErrorLike,
  RequestError,
  UnauthenticatedError,
} from './errors.ts'
export { readEvents, type ServerSentEvent } from './event-stream.ts'
export { type SseOptions, sse } from './sse.ts'
export type { Operation, Result, Token, TokenRequest, Transport } from './transport.ts'
export { createTreeState, type TreeState } from './tree-state.ts'
export type {
  EndReason,
  EventFrame,
  JobEventFilter,
  JobEventKind,
  JobState,
  Phase,
  StateCounts,
  TreeUpdate,
  WatchedEvent,
  WatchedJob,
} from './types.ts'
export { type WebSocketOptions, webSocket } from './web-socket.ts'
