import { complexityFromQuery } from '@pothos/plugin-complexity'
import { type DocumentNode, type ExecutionArgs, getOperationAST, Kind } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import type { ErrorMask } from './error-mask.ts'
import { LimitExceededError, type Limits } from './limits.ts'

/** Executor's own: it begins nothing more once this is aborted. */
interface Abortable {
  signal: AbortSignal
}

/** Refuses operations that are too deep or cost too much, and ends those that take too long, over every transport. */
export function useExecutionLimits(limits: Limits, mask: ErrorMask): Plugin {
  /** What is wrong with an operation, as its result. */
  const refusal = (args: ExecutionArgs) => {
    try {
      checkCost(args, limits)
    } catch (error) {
      return { errors: [mask(error)] }
    }
    return undefined
  }
  return {
    onExecute({ args, executeFn, setExecuteFn, setResultAndStopExecution }) {
      const refused = refusal(args)
      if (refused) {
        setResultAndStopExecution(refused)
        return
      }
      setExecuteFn((given: ExecutionArgs) =>
        withinTime(limits, (signal) => executeFn({ ...given, signal } as ExecutionArgs & Abortable)),
      )
    },
    onSubscribe({ args, setResultAndStopExecution }) {
      const refused = refusal(args)
      if (refused) setResultAndStopExecution(refused)
    },
  }
}

/** What comes first: the result, or the end of the time. Nothing waits for a field that still runs then. */
async function withinTime<T>(limits: Limits, execute: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
  const ending = new AbortController()
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const error = tooLong(limits)
      reject(error)
      ending.abort(error)
    }, limits.requestTimeoutMs)
  })
  try {
    return await Promise.race([execute(ending.signal), late])
  } finally {
    clearTimeout(timer)
  }
}

function tooLong({ requestTimeoutMs }: Limits): LimitExceededError {
  return new LimitExceededError(
    'time',
    `This took longer than ${requestTimeoutMs} ms. What it changes may have been changed all the same.`,
  )
}

function checkCost({ schema, document, operationName, variableValues }: ExecutionArgs, limits: Limits): void {
  const operation = getOperationAST(document, operationName)
  // Execution says what is wrong then.
  if (!operation) return
  // Of several operations, the library would look at the first.
  const definitions = document.definitions.filter((one) => one === operation || one.kind !== Kind.OPERATION_DEFINITION)
  const alone: DocumentNode = { ...document, definitions }
  const { complexity, depth } = complexityFromQuery(alone, { schema, variables: { ...variableValues } })
  if (depth > limits.maxDepth) {
    throw new LimitExceededError('depth', `The fields are nested ${depth} deep; ${limits.maxDepth} is the most.`)
  }
  if (complexity > limits.maxCost) {
    const cost = Math.ceil(complexity)
    throw new LimitExceededError(
      'cost',
      `This could cost ${cost}; ${limits.maxCost} is the most. Ask for smaller pages or fewer levels.`,
    )
  }
}
