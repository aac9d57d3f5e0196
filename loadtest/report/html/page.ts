import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { Result } from '../../record/result.ts';
import { chartData } from './chart-data.ts';
import { escapeHtml } from './escape.ts';
import { pageBody } from './sections.ts';

/**
 * The result as one HTML file: styles, charts, uPlot and data inside, no request to anywhere. At most a few hundred
 * points a chart, so that a report of an hour opens as quickly as one of a minute.
 */
export async function renderHtml(result: Result): Promise<string> {
  const require = createRequire(import.meta.url);
  const uplot = dirname(require.resolve('uplot/package.json'));
  const [library, libraryStyle, style, client] = await Promise.all([
    readFile(join(uplot, 'dist/uPlot.iife.min.js'), 'utf8'),
    readFile(join(uplot, 'dist/uPlot.min.css'), 'utf8'),
    readFile(join(import.meta.dirname, 'report.css'), 'utf8'),
    readFile(join(import.meta.dirname, 'client.mjs'), 'utf8'),
  ]);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>Load test: ${escapeHtml(result.run.scenario)}</title>
<style>${libraryStyle}\n${style}</style>
</head>
<body>
${pageBody(result)}
<script type="application/json" id="data">${embedJson(chartData(result))}</script>
<script>${library}</script>
<script>${client}</script>
</body>
</html>
`;
}

/** JSON inside a script element: nothing in it can end the element. */
const embedJson = (value: unknown): string =>
  JSON.stringify(value)
    .replaceAll('<', '\\u003c')
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029');
