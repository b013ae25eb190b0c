import type { Explanation as EngineExplanation } from '../engine/explain/explanation.ts'
import { explainedJobs } from '../resolvers/job-fields.ts'
import { builder } from './builder.ts'
import { ExplainReason } from './enums.ts'
import { Job } from './refs.ts'

export const Explanation = builder.objectRef<EngineExplanation>('Explanation').implement({
  description: 'One reason why a job is not moving.',
  fields: (t) => ({
    reason: t.expose('reason', { type: ExplainReason, description: 'For programs.' }),
    sentence: t.exposeString('sentence', { description: 'For people: names, numbers, instants filled in.' }),
    facts: t.field({
      type: 'JSON',
      description: 'The data behind the sentence; keys are documented per reason.',
      resolve: ({ facts }) => facts,
    }),
    jobs: t.field({
      type: [Job],
      description: 'The jobs it speaks of (open children, held-up leaves, paused ancestor), the first five.',
      resolve: explainedJobs,
    }),
    count: t.exposeInt('count', { description: 'How many such jobs there are.' }),
    next: t.exposeString('next', {
      nullable: true,
      description: 'What happens next, in words; null if nothing will by itself.',
    }),
    nextAt: t.expose('nextAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When; null if it depends on something without a date.',
    }),
  }),
})
