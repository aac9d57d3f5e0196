/** Text of a guest or a build tool on its way to a person. */
import { visibleText } from '../../sdk/index.ts';

/** Safe to show on a terminal: line ends are newlines, and what could steer a terminal is spelt out. */
export const escapeOutput = (text: string): string => visibleText(text.replaceAll('\r\n', '\n'));

/** The end of a text, at most `maxLength` characters, starting at a line where that costs little. */
export function tailOf(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const tail = text.slice(-maxLength);
  const newline = tail.indexOf('\n');
  return `…${newline >= 0 && newline < maxLength / 4 ? tail.slice(newline + 1) : tail}`;
}
