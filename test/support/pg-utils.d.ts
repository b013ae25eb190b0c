declare module 'pg/lib/utils.js' {
  /** A parameter as it goes to the server. */
  export function prepareValue(value: unknown): string | Buffer | null
}
