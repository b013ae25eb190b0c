import { defineJob } from '../src/index.ts'

/** Does nothing, takes anything and results in null: for trying out, and for measuring the engine itself. */
export const noopJob = defineJob({ type: 'noop' }, { async run() {} })
