import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { type Browser, chromium } from 'playwright-core';
import { Durations } from '../../record/histogram.ts';
import type { Result } from '../../record/result.ts';
import { sampleResult } from '../../testing/sample-result.ts';
import { renderJunit } from '../junit.ts';
import { renderMarkdown } from '../markdown.ts';
import { renderHtml } from './page.ts';

const hostile = `</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">|&"'\u0001`;

/** What an hour of four start types leaves: 225 intervals of 16 s, and samples of every resource. */
function hourLong(): Result {
  const latency = new Durations();
  for (let sample = 0; sample < 50_000; sample++) latency.record(5 + (sample % 400));
  const base = sampleResult({ latency });
  const lanes = ['ready', 'restored', 'spawned', 'reused'];
  return {
    ...base,
    timeline: {
      intervalMs: 16_000,
      points: Array.from({ length: 225 }, (_, index) => ({
        atMs: index * 16_000,
        sent: 1_600,
        dropped: index % 50 === 0 ? 3 : 0,
        maxLagMs: 1 + (index % 7),
        outcomes: { ok: 1_590, refused: 10, failed: 0, timeout: 0 },
        latency: Object.fromEntries(
          lanes.map((lane, rank) => {
            const p50Ms = 5 * 3 ** rank * (1 + 0.2 * Math.sin(index / 9 + rank));
            return [lane, { count: 400, p50Ms, p95Ms: p50Ms * 2, p99Ms: p50Ms * 3, maxMs: p50Ms * 4 }];
          }),
        ),
        phases: { queueMs: 1, restoreMs: 4 + (index % 5), execMs: 6, otherMs: 1 },
      })),
    },
    resources: Array.from({ length: 360 }, (_, index) => ({
      atMs: index * 10_000,
      values: {
        machines: 8 + (index % 3),
        machines_ready: 2,
        memory_pss_bytes: 4e8 + index * 1e5,
        memory_private_bytes: 6e7,
        memory_per_machine_bytes: 5e7,
      },
    })),
  };
}

describe('text that comes from servers and guests', () => {
  const result = sampleResult({
    errors: [
      {
        code: hostile,
        outcome: 'failed',
        count: 1,
        firstSequence: 0,
        firstAtMs: 0,
        firstStatus: 500,
        firstDetail: hostile,
      },
    ],
    checks: [
      {
        name: 'digest',
        promise: 'every answer comes from the expected version',
        examined: 1,
        violations: 1,
        limits: '',
        samples: [{ sequence: 0, atMs: 0, request: hostile, machine: hostile, detail: hostile }],
      },
    ],
    reasons: [hostile],
  });

  test('is escaped in HTML', async () => {
    const html = await renderHtml(result);
    assert.ok(!html.includes('<img src=x'));
    assert.ok(!html.includes("<script>document.title='owned'"));
  });

  test('breaks neither JUnit XML nor Markdown tables', () => {
    const xml = renderJunit(result);
    assert.ok(!xml.includes('<script>') && !xml.includes('\u0001'));
    const rows = renderMarkdown(result)
      .split('\n')
      .filter((line) => line.startsWith('| ') && line.includes('owned'));
    for (const row of rows) assert.equal(row.split(/(?<!\\)\|/).length, 6, row);
  });
});

const browserPath = '/usr/bin/chromium';

describe('in Chromium', { skip: existsSync(browserPath) ? false : `${browserPath} is not installed` }, () => {
  let browser: Browser;
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-report-'));
    browser = await chromium.launch({ executablePath: browserPath, args: ['--no-sandbox'] });
  });
  after(async () => {
    await browser.close();
    await rm(directory, { recursive: true });
  });

  async function open(name: string, html: string) {
    const file = join(directory, name);
    await writeFile(file, html);
    const page = await browser.newPage();
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(String(error)));
    page.on('console', (message) => {
      if (message.type() === 'error') problems.push(message.text());
    });
    page.on('request', (request) => {
      if (!request.url().startsWith('file:') && !request.url().startsWith('data:'))
        problems.push(request.url());
    });
    await page.goto(pathToFileURL(file).href);
    await page.waitForFunction('document.documentElement.dataset.drawn !== undefined');
    return { page, problems };
  }

  test('the report of an hour draws every chart, asks nobody for anything and has no errors', async () => {
    const html = await renderHtml(hourLong());
    assert.ok(html.length < 1_000_000, `${html.length} bytes`);
    const { page, problems } = await open('hour.html', html);
    assert.deepEqual(problems, []);
    assert.equal(await page.locator('figure:visible canvas').count(), 8);
    const overflow = await page.evaluate('document.documentElement.scrollWidth > window.innerWidth');
    assert.equal(overflow, false);
  });

  test('a result with no data and hostile text shows its tables and runs none of the text', async () => {
    const { page, problems } = await open(
      'empty.html',
      await renderHtml(sampleResult({ reasons: [hostile] })),
    );
    assert.deepEqual(problems, []);
    assert.equal(await page.title(), 'Load test: invoke');
    assert.equal(await page.locator('figure:visible').count(), 0);
    assert.ok((await page.locator('details').count()) >= 3);
  });
});
