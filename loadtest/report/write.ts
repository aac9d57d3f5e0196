import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { GatewayError } from '../../sdk/index.ts';
import { type Result, resultSchema, resultSchemaName } from '../record/result.ts';
import { renderCsv } from './csv.ts';
import { renderHtml } from './html/page.ts';
import { renderJunit } from './junit.ts';
import { renderMarkdown } from './markdown.ts';

/** The forms a result can be written in, with the name of each file in a report directory. */
export const reportFiles = {
  json: 'result.json',
  html: 'report.html',
  markdown: 'report.md',
  csv: 'timeline.csv',
  junit: 'junit.xml',
} as const;
export type ReportForm = keyof typeof reportFiles;

/** The result in one form. */
export async function renderResult(result: Result, form: ReportForm): Promise<string> {
  switch (form) {
    case 'json':
      return `${JSON.stringify(result)}\n`;
    case 'html':
      return renderHtml(result);
    case 'markdown':
      return renderMarkdown(result);
    case 'csv':
      return renderCsv(result);
    case 'junit':
      return renderJunit(result);
  }
}

/** Writes one form to a file; a reader sees the old file or the whole new one. Makes its directory. */
export async function writeReport(result: Result, form: ReportForm, file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  const partial = `${file}.${process.pid}.partial`;
  await writeFile(partial, await renderResult(result, form));
  await rename(partial, file);
}

/** Writes every form into a directory. */
export async function writeReports(result: Result, directory: string): Promise<void> {
  for (const form of Object.keys(reportFiles) as ReportForm[]) {
    await writeReport(result, form, join(directory, reportFiles[form]));
  }
}

/** Largest result that is read: an hour with every metric is below 1 MiB. */
const maxResultBytes = 256 * 1024 * 1024;

/** Reads a result. Rejects with `invalid_request` when it is none, or of another schema version. */
export async function readResult(file: string): Promise<Result> {
  const refuse = (reason: string, cause?: unknown) =>
    new GatewayError('invalid_request', `${file}: ${reason}`, cause === undefined ? {} : { cause });
  let value: unknown;
  try {
    const text = await readFile(file, 'utf8');
    if (text.length > maxResultBytes) throw new RangeError('too large');
    value = JSON.parse(text);
  } catch (cause) {
    throw refuse(cause instanceof Error ? cause.message : 'not a result', cause);
  }
  const schema = (value as { schema?: unknown } | null)?.schema;
  if (schema !== resultSchemaName) {
    throw refuse(`schema is ${JSON.stringify(schema)?.slice(0, 60)}, this harness reads ${resultSchemaName}`);
  }
  const parsed = resultSchema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw refuse(`${issue?.path.join('.')}: ${issue?.message}`);
  }
  return parsed.data;
}
