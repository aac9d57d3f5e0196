import { createReadStream } from 'node:fs';
import { createGunzip } from 'node:zlib';
import { parse } from 'csv-parse';
import { GatewayError } from '../../sdk/index.ts';

/**
 * Rows of a comma-separated file with a header line, as they come; `.gz` files are unpacked on the way. Rejects with
 * `invalid_request` when the file can't be read, is no CSV or lacks one of the `required` columns.
 */
export async function* readRows(
  file: string,
  required: readonly string[],
): AsyncGenerator<Readonly<Record<string, string>>> {
  const parser = parse({ columns: true, trim: true, skip_empty_lines: true, max_record_size: 1024 * 1024 });
  const input = createReadStream(file);
  input.on('error', (error) => parser.destroy(error));
  if (file.endsWith('.gz')) {
    const gunzip = createGunzip();
    gunzip.on('error', (error) => parser.destroy(error));
    input.pipe(gunzip).pipe(parser);
  } else {
    input.pipe(parser);
  }
  let isFirst = true;
  try {
    for await (const row of parser as AsyncIterable<Record<string, string>>) {
      if (isFirst) {
        const missing = required.filter((column) => !Object.hasOwn(row, column));
        if (missing.length > 0)
          throw new GatewayError('invalid_request', `trace ${file} lacks columns ${missing.join(', ')}`);
        isFirst = false;
      }
      yield row;
    }
  } catch (error) {
    if (error instanceof GatewayError) throw error;
    throw new GatewayError(
      'invalid_request',
      `trace ${file}: ${error instanceof Error ? error.message : String(error)}`,
      {
        cause: error,
      },
    );
  } finally {
    input.destroy();
  }
}

/** A number of a row; empty counts as 0. Throws `invalid_request` naming the column otherwise. */
export function numberIn(row: Readonly<Record<string, string>>, column: string, file: string): number {
  const text = row[column] ?? '';
  if (text === '') return 0;
  const value = Number(text);
  if (!Number.isFinite(value)) {
    throw new GatewayError(
      'invalid_request',
      `trace ${file}: column ${column} holds \`${text.slice(0, 40)}\`, not a number`,
    );
  }
  return value;
}
