import { stat } from 'node:fs/promises'
import { extname, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { type AnyDefinition, isJobDefinition } from '../engine/definition/define-job.ts'
import { CliError } from './cli-error.ts'

const TYPESCRIPT = new Set(['.ts', '.mts', '.cts', '.tsx'])

/**
 * The job definitions that a module exports, by whatever names, one by one or in arrays.
 *
 * @param module path to a JavaScript or TypeScript file, from the working directory.
 * @throws {CliError} when there is no such module, it does not load, exports none, or two of one type.
 */
export async function loadJobs(module: string): Promise<AnyDefinition[]> {
  const file = resolve(module)
  const found = await stat(file).catch(() => undefined)
  if (!found?.isFile()) throw new CliError(`There is no module of jobs at ${file}.`)
  const definitions = new Set<AnyDefinition>()
  for (const exported of Object.values(await load(file))) {
    for (const value of Array.isArray(exported) ? exported : [exported]) {
      if (isJobDefinition(value)) definitions.add(value)
    }
  }
  if (definitions.size === 0) {
    throw new CliError(`${file} exports no job definitions: export what defineJob returns, or an array of such.`)
  }
  const types = new Set<string>()
  for (const { type } of definitions) {
    if (types.has(type)) throw new CliError(`${file} exports two definitions of the job type ${type}.`)
    types.add(type)
  }
  return [...definitions]
}

async function load(file: string): Promise<Record<string, unknown>> {
  // Run from its TypeScript sources, this program has the loader already.
  if (TYPESCRIPT.has(extname(file)) && !import.meta.url.endsWith('.ts')) {
    const { register } = await import('tsx/esm/api')
    register()
  }
  try {
    const module = (await import(pathToFileURL(file).href)) as Record<string, unknown>
    const { default: main } = module
    // A CommonJS module, or a default export that holds the definitions by name.
    return typeof main === 'object' && main !== null && !isJobDefinition(main) ? { ...main, ...module } : module
  } catch (error) {
    throw new CliError(`${file} does not load: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    })
  }
}
