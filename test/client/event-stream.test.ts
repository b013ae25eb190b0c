import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readEvents, type ServerSentEvent } from '../../src/client/index.ts'

async function eventsOf(chunks: Uint8Array[]): Promise<ServerSentEvent[]> {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk)
      controller.close()
    },
  })
  const events: ServerSentEvent[] = []
  for await (const event of readEvents(body)) events.push(event)
  return events
}

const text = fc.string({ unit: 'grapheme' }).map((raw) => raw.replaceAll(/[\r\n]/g, ''))

test('events are the same wherever the chunks end, in the midst of characters and ends of lines too', async () => {
  const event = fc.record({
    event: fc.constantFrom('next', 'complete'),
    data: fc.array(text, { minLength: 1, maxLength: 3 }),
  })
  const end = fc.constantFrom('\n', '\r\n', '\r')
  const sizes = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1 })
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 5 }), end, sizes, async (events, eol, lengths) => {
      const lines = events.flatMap(({ event, data }) => [
        ': a comment',
        'id: 7',
        `event: ${event}`,
        ...data.map((line) => `data: ${line}`),
        '',
        ':',
        '',
      ])
      // The last end of line is seen to be one when something follows.
      const bytes = new TextEncoder().encode(`${lines.map((line) => line + eol).join('')}: end\n`)
      const chunks: Uint8Array[] = []
      for (let offset = 0, n = 0; offset < bytes.length; n++) {
        const length = lengths[n % lengths.length]!
        chunks.push(bytes.subarray(offset, offset + length))
        offset += length
      }
      expect(await eventsOf(chunks)).toEqual(events.map(({ event, data }) => ({ event, data: data.join('\n') })))
    }),
    { numRuns: 200 },
  )
})

test('an event that is not finished is not told; one without data is none; a field without a colon is empty', async () => {
  const bytes = (stream: string) => [new TextEncoder().encode(stream)]
  expect(await eventsOf(bytes('event: next\ndata: 1'))).toEqual([])
  expect(await eventsOf(bytes('event: next\n\ndata:2\n\n'))).toEqual([{ event: 'message', data: '2' }])
  expect(await eventsOf(bytes('data\ndata: b\n\n'))).toEqual([{ event: 'message', data: '\nb' }])
})

test('leaving cancels the body', async () => {
  let cancelled = false
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\n\n')),
    cancel() {
      cancelled = true
    },
  })
  for await (const { data } of readEvents(body)) {
    expect(data).toBe('1')
    break
  }
  expect(cancelled).toBe(true)
})
