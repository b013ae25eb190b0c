import { defineConfig } from 'vitest/config'

export default defineConfig({
  // Node loads graphql's CommonJS form, Vite would load its other one beside it: two libraries, of which neither knows
  // the other's errors and types.
  resolve: { alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }] },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Two workers for two cores: each file has its own database on the one server of the run.
    maxWorkers: 2,
    fileParallelism: true,
  },
})
