import type { JobEvent } from '../engine/feed/event.ts'
import type { Json } from '../engine/job.ts'
import type { Context } from './context.ts'
import { includesRole } from './viewer.ts'

/** An event's detail; without the error's stack for those who may not see stacks. */
export function eventDetail({ detail }: JobEvent, { viewer }: Context): Json {
  if (includesRole(viewer, 'operator') || !isObject(detail) || !isObject(detail.error)) return detail
  const { stack: _stack, ...error } = detail.error
  return { ...detail, error }
}

function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
