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
