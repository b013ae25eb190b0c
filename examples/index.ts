/** Every example, for `coppice serve --jobs examples/index.ts`. */
export { digestFileJob, digestFolderJob } from './digest-folder.ts'
export { flakyJob } from './flaky.ts'
export { noopJob } from './noop.ts'
export { wordCountJob, wordCountPartJob } from './word-count.ts'
