/** Most errors of one chain that are looked at. */
const MAX_LINKS = 20

/**
 * An error, then what caused it: its `cause`, and the members of an AggregateError, each before its own causes. Holds
 * for circular causes and for anything else that can be thrown.
 */
export function errorChain(error: unknown): unknown[] {
  const links: unknown[] = []
  const todo = [error]
  while (todo.length > 0 && links.length < MAX_LINKS) {
    const link = todo.shift()
    if (links.includes(link)) continue
    links.push(link)
    const cause = propertyOf(link, 'cause')
    if (cause !== undefined && cause !== null) todo.push(cause)
    const members = propertyOf(link, 'name') === 'AggregateError' ? propertyOf(link, 'errors') : undefined
    if (Array.isArray(members)) todo.push(...members.slice(0, MAX_LINKS))
  }
  return links
}

/** A property of anything; undefined when there is none, or when reading it throws. */
export function propertyOf(value: unknown, name: PropertyKey): unknown {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return undefined
  try {
    return (value as Record<PropertyKey, unknown>)[name]
  } catch {
    return undefined
  }
}
