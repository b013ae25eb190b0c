import { execFile } from 'node:child_process'
import { copyFile, cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const ROOT = path.resolve(import.meta.dirname, '../..')

/** A program compiled to JavaScript with all that it imports. */
export interface CompiledProgram {
  /** To be run by `node`. */
  readonly file: string
  /** `src/cli.ts`, compiled along with it. */
  readonly cli: string
  remove(): Promise<void>
}

/** Compiles a program, such as one that is started very often: that takes it a third of the time that it takes tsx. */
export async function compileProgram(program: string): Promise<CompiledProgram> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-compiled-'))
  const config = {
    extends: path.join(ROOT, 'tsconfig.json'),
    compilerOptions: { noEmit: false, declaration: false, sourceMap: false, rootDir: ROOT, outDir: folder },
    // All of it: threads are started from files that nothing imports.
    include: [path.join(ROOT, 'src')],
    files: [program],
  }
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify(config))
    await copyFile(path.join(ROOT, 'package.json'), path.join(folder, 'package.json'))
    await cp(path.join(ROOT, 'migrations'), path.join(folder, 'migrations'), { recursive: true })
    await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
    await promisify(execFile)(path.join(ROOT, 'node_modules/.bin/tsc'), ['-p', folder])
    const file = path.join(folder, path.relative(ROOT, program)).replace(/\.ts$/, '.js')
    return { file, cli: path.join(folder, 'src/cli.js'), remove }
  } catch (error) {
    await remove()
    throw error
  }
}
