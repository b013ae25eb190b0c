import { stripVTControlCharacters } from 'node:util'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cellsOf, fitLine, printable, textOf } from '../../src/cli/tree/cells.ts'
import { age, bar } from '../../src/cli/tree/describe.ts'
import { layoutTree } from '../../src/cli/tree/layout.ts'
import { createPaint } from '../../src/cli/tree/paint.ts'
import { anyOutline, outlineJob, outlineOf } from './outlines.ts'

const show = (...args: Parameters<typeof layoutTree>) => layoutTree(...args).map(textOf)

describe('layoutTree', () => {
  test('shows every job when the screen holds them all', () => {
    const outline = outlineOf([
      outlineJob({ id: 'r', key: 'src', state: 'waiting' }),
      outlineJob({ id: 'a', parentId: 'r', key: 'db', state: 'waiting', wave: 2 }),
      outlineJob({ id: 'b', parentId: 'r', type: 'digest-file', key: 'cli.ts', state: 'completed' }),
      outlineJob({
        id: 'c',
        parentId: 'a',
        type: 'digest-file',
        key: 'a.ts',
        state: 'running',
        retryCount: 1,
        error: 'x',
      }),
      outlineJob({
        id: 'd',
        parentId: 'a',
        type: 'digest-file',
        key: 'b.ts',
        state: 'failed',
        errorCode: 'PARSE',
        error: 'EACCES',
      }),
    ])
    expect(show(outline, { columns: 100, rows: 10 })).toEqual([
      '████████░░░░░░░░░░░░ 2/5 jobs 12.3 s 1 running 2 waiting 1 completed 1 failed JB_r',
      '◌ digest-folder src waiting █████░░░░░ 1/2',
      '├─ ◌ digest-folder db waiting wave 2 █████░░░░░ 1/2',
      '│  ├─ ▶ digest-file a.ts running retry 1/2 x',
      '│  └─ ✘ digest-file b.ts failed PARSE EACCES',
      '└─ ✔ digest-file cli.ts completed',
    ])
  })

  test('counts siblings in one state when there are too many, and keeps lines for what is going on', () => {
    const outline = outlineOf(
      [
        outlineJob({ id: 'r', key: 'big', state: 'waiting' }),
        ...Array.from({ length: 3 }, (_, i) => outlineJob({ id: `run${i}`, parentId: 'r', key: `run${i}` })),
        outlineJob({ id: 'bad', parentId: 'r', key: 'bad', state: 'failed', error: 'broken' }),
      ],
      { r: { queued: 19_000, completed: 996 } },
    )
    expect(show(outline, { columns: 60, rows: 9 })).toEqual([
      '░░░░░░░░░░░░░░░░░░░░ 997/20,001 jobs 12.3 s 19,000 queued 3…',
      '◌ digest-folder big waiting ░░░░░░░░░░ 997/20,000',
      '├─ ▶ digest-folder run0 running',
      '├─ ▶ digest-folder run1 running',
      '├─ ▶ digest-folder run2 running',
      '├─ ✘ digest-folder bad failed broken',
      '├─ · 19,000 queued',
      '└─ ✔ 996 completed',
    ])
    expect(show(outline, { columns: 60, rows: 7 }).slice(2)).toEqual([
      '├─ ✘ digest-folder bad failed broken',
      '├─ ▶ digest-folder run0 running',
      '├─ ▶ 2 running',
      '├─ · 19,000 queued',
      '└─ ✔ 996 completed',
    ])
    expect(show(outline, { columns: 90, rows: 3 }).slice(2)).toEqual([
      '└─ ✘ 1 failed, 3 running, 19,000 queued, 996 completed',
    ])
  })

  test('leaves room for deeper levels', () => {
    const outline = outlineOf([
      outlineJob({ id: 'r', state: 'waiting' }),
      ...Array.from({ length: 40 }, (_, i) =>
        outlineJob({ id: `w${i}`, parentId: 'r', key: `w${i}`, state: 'waiting' }),
      ),
      ...Array.from({ length: 40 }, (_, i) => outlineJob({ id: `f${i}`, parentId: `w${i}`, key: `f${i}` })),
    ])
    const lines = show(outline, { columns: 80, rows: 24 })
    expect(lines.length).toBeGreaterThan(20)
    expect(lines.filter((line) => line.includes('▶ digest-folder f')).length).toBeGreaterThan(5)
    expect(lines.at(-1)).toMatch(/^└─ ◌ \d+ waiting$/)
  })

  test('never takes more lines or cells than there are, whatever the tree', () => {
    fc.assert(
      fc.property(anyOutline, fc.nat(140), fc.nat(70), (outline, columns, rows) => {
        const lines = show(outline, { columns, rows })
        expect(lines.length).toBeLessThanOrEqual(rows)
        for (const line of lines) {
          expect(cellsOf(line)).toBeLessThanOrEqual(columns)
          expect(printable(line)).toBe(line)
        }
        if (rows > 0 && columns > 0) expect(lines.length).toBeGreaterThan(0)
      }),
      { numRuns: 500 },
    )
  })

  test('accounts for every job below the root, by its own line or in a number', () => {
    fc.assert(
      fc.property(anyOutline, fc.integer({ min: 3, max: 70 }), (outline, rows) => {
        const lines = layoutTree(outline, { columns: 10_000, rows })
        const root = outline.root
        // The root's own children: a line each, or counted in a line of the first level.
        let seen = 0
        for (const line of lines.slice(2)) {
          const [guide, ...rest] = line
          if (guide!.text.length !== 3) continue
          const counted = rest.map(({ text }) =>
            /^(?:. |, )([\d,]+) (queued|running|waiting|paused|completed|failed|cancelled)$/.exec(text),
          )
          if (counted.every((match) => match !== null)) {
            for (const match of counted) seen += Number(match![1]!.replaceAll(',', ''))
          } else seen += 1
        }
        expect(seen).toBe(root.childCount)
      }),
      { numRuns: 300 },
    )
  })

  test('shows the end of the lines that lead to a deep job', () => {
    const chain = Array.from({ length: 30 }, (_, i) =>
      outlineJob({ id: `j${i}`, parentId: i === 0 ? null : `j${i - 1}`, key: `j${i}`, state: 'waiting' }),
    )
    const lines = show(outlineOf(chain), { columns: 40, rows: 40 })
    expect(lines.length).toBe(31)
    expect(lines.at(-1)).toMatch(/^… +└─ ◌ digest-folder/)
  })
})

describe('text for a terminal', () => {
  test('is cut by cells, not by characters', () => {
    expect(fitLine([{ text: '学校学校', style: 'plain' }], 6)).toEqual([{ text: '学校…', style: 'plain' }])
    expect(fitLine([{ text: '学校', style: 'plain' }], 4)).toEqual([{ text: '学校', style: 'plain' }])
    expect(
      fitLine(
        [
          { text: 'ab', style: 'dim' },
          { text: 'cdef', style: 'bad' },
        ],
        4,
      ),
    ).toEqual([
      { text: 'ab', style: 'dim' },
      { text: 'c…', style: 'bad' },
    ])
    expect(fitLine([{ text: '👩‍👩‍👧‍👦👩‍👩‍👧‍👦', style: 'plain' }], 3).map(({ text }) => text)).toEqual(['👩‍👩‍👧‍👦…'])
  })

  test('cannot steer the terminal', () => {
    expect(printable('a\u001b[31mb\nc\u0007\u202e\u009b')).toBe('a\\u{1b}[31mb\\nc\\u{7}\\u{202e}\\u{9b}')
    expect(printable('naïve 学校 👍')).toBe('naïve 学校 👍')
  })

  test('is painted only where colours are wanted', () => {
    const lines = [[{ text: 'x', style: 'bad' as const }], [{ text: 'y', style: 'plain' as const }]]
    expect(createPaint(false)(lines)).toBe('x\ny')
    expect(stripVTControlCharacters(createPaint(true)(lines))).toBe('x\ny')
  })
})

test('a bar is full only at the end, and an age is short', () => {
  expect(bar(0.999)).toBe('█████████░')
  expect(bar(1)).toBe('██████████')
  expect(bar(Number.NaN)).toBe('░░░░░░░░░░')
  expect([age(-5), age(3210), age(245_000), age(3_845_000), age(176_645_000)]).toEqual([
    '0.0 s',
    '3.2 s',
    '4:05',
    '1:04:05',
    '2 d 01:04:05',
  ])
})
