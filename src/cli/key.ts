import { Argument, Command, Option } from 'commander'
import { ROLES, type Role } from '../resolvers/viewer.ts'
import { hashApiKey, makeApiKey } from '../server/auth/api-keys.ts'
import { formatApiKey, KEY_NAME } from '../settings/api-key.ts'
import { CliError } from './cli-error.ts'
import { writeOut } from './write-out.ts'

/** `coppice key`. */
export function keyCommand(): Command {
  return new Command('key')
    .description('make an API key: prints it once, with the entry for COPPICE_API_KEYS, which does not tell it')
    .addArgument(new Argument('<NAME>', 'whose key it is: the actor of what is done with it'))
    .addOption(new Option('--role <ROLE>', 'what it allows').choices(ROLES).makeOptionMandatory())
    .option('--json', 'write the result as JSON')
    .action(async (name: string, { role, json }: { role: Role; json?: boolean }) => {
      if (!KEY_NAME.test(name)) {
        const message = `${JSON.stringify(name)} is no name for a key: letters, digits and . _ @ - do, at most 100.`
        throw new CliError(message, { exitCode: 2 })
      }
      const key = makeApiKey()
      const entry = formatApiKey({ name, role, hash: hashApiKey(key) })
      const text = [
        `The key, which is not shown again:\n\n  ${key}\n`,
        `Its entry in COPPICE_API_KEYS, behind a comma if there are others:\n\n  ${entry}\n`,
        `Callers send it as a header: Authorization: Bearer ${key.slice(0, 12)}…`,
      ]
      await writeOut(`${json ? JSON.stringify({ name, role, key, entry }) : text.join('\n')}\n`)
    })
}
