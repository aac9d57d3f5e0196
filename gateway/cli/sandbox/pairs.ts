import { InvalidArgumentError } from 'commander';

/** Parser of an option `key=value` that may be given several times. */
export function keyValue(
  text: string,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('It is given as KEY=VALUE.');
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** Parser of an option that is a network rule, with `!` in front of what is refused, and may be given several times. */
export const networkRule = (
  text: string,
  before: Readonly<Record<string, boolean>> = {},
): Readonly<Record<string, boolean>> => ({ ...before, [text.replace(/^!/, '')]: !text.startsWith('!') });
