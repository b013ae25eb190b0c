import { z } from 'zod'
import { type ContextOf, declareJob, defineJob, PermanentError, RetryableError } from '../src/index.ts'
import { type Plan, plan } from './planner.ts'

const question = z.object({
  question: z.string().min(1).max(10_000),
  /** How many calls of the model fail for each question before one succeeds, to see retries. */
  failures: z.int().min(0).default(0),
})

/**
 * Answers a question as agents do: a planner looks at it and answers, calls a tool, or splits it into smaller questions,
 * each an agent of its own, to a depth that nobody knows beforehand. The plan is kept as a checkpoint, so that a retry
 * does not ask the model again.
 */
export const agent = declareJob({
  type: 'agent',
  payload: question,
  result: z.object({
    answer: z.string(),
    /** Questions that were planned, this one included. */
    questions: z.number(),
    tools: z.number(),
    /** Levels of smaller questions and tools below this one. */
    depth: z.number(),
  }),
  checkpoint: z.custom<Plan>(),
})

/** One call of a tool. */
export const agentTool = declareJob({
  type: 'agent-tool',
  payload: z.object({ tool: z.enum(['words', 'letters', 'longest']), text: z.string() }),
  result: z.string(),
})

export const agentJob = defineJob(agent, {
  backoff: { initial: '50ms', cap: '5s' },
  async ingest(ctx) {
    const next = ctx.saved ?? (await askModel(ctx))
    if (next.kind === 'answer') return { answer: next.answer, questions: 1, tools: 0, depth: 0 }
    if (next.kind === 'tool') return void (await ctx.spawn([agentTool.with({ tool: next.tool, text: next.text })]))
    const { failures } = ctx.payload
    const smaller = next.questions.map((text, index) => agent.with({ question: text, failures }, { key: `${index}` }))
    await ctx.spawn(smaller)
  },
  async aggregate(ctx) {
    const combine = ctx.saved?.kind === 'split' ? ctx.saved.combine : undefined
    const total = { questions: 1, tools: 0, depth: 0 }
    const answers: string[] = []
    for await (const call of ctx.children(agentTool)) {
      if (call.state !== 'completed') throw new PermanentError('The tool failed', { code: 'CHILD_FAILED' })
      answers.push(call.result)
      total.tools++
      total.depth = 1
    }
    for await (const part of ctx.children(agent)) {
      // One of several questions may stay open; an operand may not.
      if (part.state === 'completed') {
        answers.push(part.result.answer)
        total.questions += part.result.questions
        total.tools += part.result.tools
        total.depth = Math.max(total.depth, part.result.depth + 1)
      } else if (combine === ';' && part.state === 'failed') answers.push(`no answer (${part.error.message})`)
      else throw new PermanentError(`No answer to: ${part.payload.question.trim()}`, { code: 'CHILD_FAILED' })
    }
    return { answer: combine === undefined ? answers.join() : combined(combine, answers), ...total }
  },
})

export const agentToolJob = defineJob(agentTool, {
  run(ctx) {
    const words = ctx.payload.text.match(/[\p{L}\p{N}'-]+/gu) ?? []
    if (ctx.payload.tool === 'words') return String(words.length)
    if (ctx.payload.tool === 'letters') return String(ctx.payload.text.match(/\p{L}/gu)?.length ?? 0)
    return words.reduce((longest, word) => (word.length > longest.length ? word : longest), '')
  },
})

async function askModel(ctx: ContextOf<typeof agent>): Promise<Plan> {
  if (ctx.attempt <= ctx.payload.failures) {
    throw new RetryableError('The model is overloaded', { code: 'AI_FAILURE', operation: 'agent plan' })
  }
  const made = plan(ctx.payload.question)
  await ctx.save(made)
  return made
}

function combined(operator: '+' | '-' | '*' | '/' | ';', answers: readonly string[]): string {
  if (operator === ';') return answers.join('; ')
  const [left, right] = answers.map(Number) as [number, number]
  const value = { '+': left + right, '-': left - right, '*': left * right, '/': left / right }[operator]
  if (!Number.isFinite(value)) {
    throw new PermanentError(`${answers.join(` ${operator} `)} is no number`, { code: 'VALIDATION' })
  }
  return String(value)
}
