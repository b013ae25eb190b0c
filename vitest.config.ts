import { defineConfig } from 'vitest/config'

export default defineConfig({
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
