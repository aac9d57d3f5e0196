import { readFileSync } from 'node:fs';
import { InvalidArgumentError } from 'commander';
import { GatewayError } from '../../sdk/index.ts';

/** Parser of a duration such as `500ms`, `30s`, `5m`, `2h`; milliseconds. A bare number is refused: it says no unit. */
export function duration(text: string): number {
  const match = /^([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)$/.exec(text);
  if (match === null) throw new InvalidArgumentError('It must be a number with a unit: 500ms, 30s, 5m, 2h.');
  const scale = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }[match[2] as 'ms' | 's' | 'm' | 'h'];
  return Math.round(Number(match[1]) * scale);
}

/** Parser of a number within bounds. */
export const numberFrom =
  (min: number, max: number) =>
  (text: string): number => {
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
    }
    return value;
  };

/** Parser of a whole number within bounds. */
export const wholeFrom =
  (min: number, max: number) =>
  (text: string): number => {
    const value = numberFrom(min, max)(text);
    if (!Number.isInteger(value))
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    return value;
  };

/** Parser of an amount of memory such as `512MiB` or `16GiB`; bytes. */
export function bytes(text: string): number {
  const match = /^([0-9]+(?:\.[0-9]+)?)(KiB|MiB|GiB|TiB)$/.exec(text);
  if (match === null) throw new InvalidArgumentError('It must be a number with a unit: 512MiB, 16GiB.');
  const scale = { KiB: 1, MiB: 2, GiB: 3, TiB: 4 }[match[2] as 'KiB' | 'MiB' | 'GiB' | 'TiB'];
  return Math.round(Number(match[1]) * 1024 ** scale);
}

/** Parser of an option that may be given several times. */
export const collected = (text: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  text,
];

/** Parser of JSON given directly, or as `@file`. */
export function jsonOrFile(text: string): unknown {
  const source = text.startsWith('@') ? readText(text.slice(1)) : text;
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new InvalidArgumentError(`It is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}

/** Splits `key=value` pairs; values that are JSON are taken as such, others as text. */
export function keyValues(pairs: readonly string[], option: string): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals < 1) {
      throw new GatewayError('invalid_request', `${option} ${pair}: write it as key=value`, {
        field: option,
      });
    }
    values[pair.slice(0, equals)] = jsonOrText(pair.slice(equals + 1));
  }
  return values;
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
