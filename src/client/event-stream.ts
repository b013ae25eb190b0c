/** One event of a stream of server-sent events. */
export interface ServerSentEvent {
  event: string
  data: string
}

/**
 * Reads a stream of server-sent events. Lines may end in CR, LF or both, anywhere a chunk may end; comments are passed
 * over; what was not finished by an empty line is not told.
 *
 * @param alive called with each chunk, comments too.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
  alive: () => void = () => {},
): AsyncGenerator<ServerSentEvent, undefined> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  // A CR at the end of a chunk may be half of an end of line.
  const lineEnd = /\r\n|\n|\r(?!$)/g
  let text = ''
  let event = 'message'
  let data: string[] = []
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      alive()
      // What was there before has no end of line in it, but for that CR.
      lineEnd.lastIndex = Math.max(0, text.length - 1)
      text += decoder.decode(value, { stream: true })
      let begin = 0
      for (let end = lineEnd.exec(text); end !== null; end = lineEnd.exec(text)) {
        const line = text.slice(begin, end.index)
        begin = lineEnd.lastIndex
        if (line === '') {
          if (data.length > 0) yield { event, data: data.join('\n') }
          event = 'message'
          data = []
        } else {
          const [, name, content] = /^([^:]*):? ?(.*)$/s.exec(line)!
          if (name === 'event') event = content!
          else if (name === 'data') data.push(content!)
        }
      }
      text = text.slice(begin)
    }
  } finally {
    // Where the reader is left in the middle, the connection is not kept.
    reader.cancel().catch(() => {})
  }
}
