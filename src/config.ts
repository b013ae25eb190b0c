import type { z } from 'zod'
import { ACCESS_SETTINGS } from './settings/access.ts'
import { accessIssues } from './settings/access-issues.ts'
import { GENERAL_SETTINGS } from './settings/general.ts'
import { LIMIT_SETTINGS } from './settings/limits.ts'
import type { ConfigIssue, Setting } from './settings/setting.ts'

export type { ConfigIssue, Setting } from './settings/setting.ts'

/** All settings, in the order in which help and README list them. */
export const settings = [...GENERAL_SETTINGS, ...ACCESS_SETTINGS, ...LIMIT_SETTINGS] as const

/** The settings of a program, checked. Durations are in milliseconds, as their names say. */
export type Config = {
  readonly [S in (typeof settings)[number] as S['name']]: z.output<S['parser']>
}

/** Some settings are wrong; the message lists every one of them. */
export class ConfigError extends Error {
  readonly code = 'CONFIG'
  readonly issues: readonly ConfigIssue[]

  constructor(issues: readonly ConfigIssue[]) {
    const lines = issues.map(({ source, given, expected }) => `  ${source} is ${given}: expected ${expected}`)
    super(`${issues.length === 1 ? 'A setting is' : 'Some settings are'} wrong:\n${lines.join('\n')}`)
    this.name = 'ConfigError'
    this.issues = issues
  }
}

/** Where settings come from. */
export interface ConfigSources {
  readonly env: Readonly<Record<string, string | undefined>>
  /** By the flag in camel case (`--data-dir` is `dataDir`), as commander gives them; true for one without a value. */
  readonly flags?: Readonly<Record<string, unknown>>
}

/**
 * Reads all settings: a flag goes before its variable, which goes before the default. An empty variable counts as none.
 * @throws ConfigError listing everything that is wrong
 */
export function loadConfig(sources: ConfigSources): Config {
  const issues: ConfigIssue[] = []
  const values: Record<string, unknown> = {}
  for (const setting of settings as readonly Setting[]) {
    const { source, value } = given(setting, sources)
    const parsed = setting.parser.safeParse(value ?? setting.default)
    if (parsed.success) values[setting.name] = parsed.data
    else issues.push({ source, given: shown(setting, value ?? ''), expected: setting.expected })
  }
  const config = values as Config
  if (issues.length === 0 && config.databaseUrl === undefined && config.directDatabaseUrl !== undefined) {
    issues.push({ source: 'DATABASE_URL', given: 'not set', expected: 'a URL too when DIRECT_DATABASE_URL is set' })
  }
  if (issues.length === 0) issues.push(...accessIssues(config))
  if (issues.length > 0) throw new ConfigError(issues)
  return { ...config, directDatabaseUrl: config.directDatabaseUrl ?? config.databaseUrl }
}

/** The property of commander's options, and so of `flags`, that holds a setting. */
export function flagKey(setting: Pick<Setting, 'flag'>): string {
  return setting.flag.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** The settings as a table in Markdown, for the README. */
export function settingsTable(): string {
  const rows = (settings as readonly Setting[]).map((setting) => {
    const flag = setting.placeholder === undefined ? setting.flag : `${setting.flag} ${setting.placeholder}`
    const byDefault = setting.default === undefined ? '' : `\`${setting.default}\``
    return `| \`${setting.env}\` | \`${flag}\` | ${byDefault} | ${setting.description} |`
  })
  return ['| Variable | Flag | Default | Meaning |', '| --- | --- | --- | --- |', ...rows].join('\n')
}

function given(setting: Setting, { env, flags = {} }: ConfigSources): { source: string; value: string | undefined } {
  const flag = flags[flagKey(setting)]
  if (flag !== undefined) return { source: setting.flag, value: String(flag) }
  const variable = env[setting.env]
  return { source: setting.env, value: variable?.trim() === '' ? undefined : variable }
}

/** Error messages end up in logs. */
function shown(setting: Setting, value: string): string {
  return setting.secret ? '(not shown)' : JSON.stringify(hidePassword(value))
}

function hidePassword(value: string): string {
  return value.replace(/^([a-z+]+:\/\/)?.*@/i, '$1***@').replaceAll(/(password=)[^&\s]*/gi, '$1***')
}
