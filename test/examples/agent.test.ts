import { describe, expect, test } from 'vitest'
import { agent } from '../../examples/agent.ts'
import { plan } from '../../examples/planner.ts'
import { shell } from './independent.ts'
import { useExamples } from './use-examples.ts'

describe('agent', { timeout: 120_000 }, () => {
  const examples = useExamples()

  async function ask(payload: Parameters<typeof agent.with>[0]) {
    return examples.engine.waitFor(await examples.engine.enqueue(agent.with(payload)), { timeoutMs: 100_000 })
  }

  test('answers arithmetic as bash does, by trees as deep as the question', async () => {
    const questions = ['7', '2 + 3 * 4', '(2 + 3) * 4', '10 - 4 - 3', '100 / 5 / 2', '2 * -3 - -4', '((1+2)*(3+4))*5-6']
    for (const question of questions) {
      const end = await ask({ question: `What is ${question}?` })
      if (end.state !== 'completed') throw new Error(JSON.stringify(end))
      expect(end.result.answer, question).toBe(await shell(`echo $((${question}))`, '/'))
      const numbers = question.match(/\d+/g)!.length
      expect(end.result).toMatchObject({ questions: 2 * numbers - 1, tools: 0 })
    }
    expect(await ask({ question: Array.from({ length: 12 }, () => 1).join(' + ') })).toMatchObject({
      result: { answer: '12', depth: 11 },
    })
  })

  test('calls tools, and puts together what they say', async () => {
    const text = 'the quick brown fox; it jumps (over + over)'
    const words = Number(await shell(`echo '${text}' | wc -w`, '/')) - 1 // A lone + is no word.
    expect(await ask({ question: `words in "${text}" * 100 + letters in "fox"` })).toMatchObject({
      state: 'completed',
      result: { answer: String(words * 100 + 3), questions: 5, tools: 2, depth: 3 },
    })
    expect(await ask({ question: `longest word in "${text}"` })).toMatchObject({
      result: { answer: 'quick', questions: 1, tools: 1 },
    })
  })

  test('of several questions answers those that it can; an operand without an answer leaves none', async () => {
    expect(await ask({ question: '1 + 1; the meaning of life; 2 * 3' })).toMatchObject({
      state: 'completed',
      result: { answer: '2; no answer (I do not understand: the meaning of life); 6' },
    })
    expect(await ask({ question: '1 + life' })).toMatchObject({ state: 'failed', errorCode: 'CHILD_FAILED' })
    expect(await ask({ question: '1 / 0' })).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('asks an overloaded model again, each question by itself, and no more once it has its plan', async () => {
    const handle = await examples.engine.enqueue(agent.with({ question: '1 + 2', failures: 2 }))
    expect(await examples.engine.waitFor(handle)).toMatchObject({ result: { answer: '3', questions: 3 } })
    const { rows } = await examples.test.pool.query(
      `select job_id, count(*)::int as n, min(detail -> 'error' ->> 'code') as code
       from ${examples.test.schema}.job_event
       where tree_id = $1 and "from" = 'running' and "to" = 'queued' group by job_id`,
      [handle.id],
    )
    expect(rows.map(({ n, code }) => [n, code])).toEqual(Array.from({ length: 3 }, () => [2, 'AI_FAILURE']))
    expect(await ask({ question: '1', failures: 3 })).toMatchObject({ state: 'failed', errorCode: 'AI_FAILURE' })
  })
})

describe('plan', () => {
  test('takes a question apart at what binds least, the last first', () => {
    expect(plan('1 - 2 - 3 * 4')).toEqual({ kind: 'split', combine: '-', questions: ['1 - 2 ', ' 3 * 4'] })
    expect(plan('(1 + 2) * -3')).toEqual({ kind: 'split', combine: '*', questions: ['(1 + 2) ', ' -3'] })
    expect(plan('How many words in "a + b; c"?')).toEqual({ kind: 'tool', tool: 'words', text: 'a + b; c' })
  })

  test.each(['', '+', '1 +', 'x', '(1', '1 1', 'words in'])('does not understand %j', (question) => {
    const understood = () => {
      const made = plan(question)
      if (made.kind === 'split') made.questions.map(plan)
    }
    expect(understood).toThrow('I do not understand')
  })
})
