/** Makes text of a guest safe to show on a terminal. */

// C0 but tab and newline, DEL, C1, and the Unicode controls that reorder or hide text.
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the purpose
const unsafe = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

const escaped = (character: string): string => {
  const code = character.charCodeAt(0);
  return code <= 0xff
    ? `\\x${code.toString(16).padStart(2, '0')}`
    : `\\u${code.toString(16).padStart(4, '0')}`;
};

/** Newlines and tabs stay, `\r\n` becomes a newline, everything that could steer a terminal is spelt out. */
export const escapeOutput = (text: string): string => text.replaceAll('\r\n', '\n').replace(unsafe, escaped);

/** The end of a text, at most `maxLength` characters, starting at a line where that costs little. */
export function tailOf(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const tail = text.slice(-maxLength);
  const newline = tail.indexOf('\n');
  return `…${newline >= 0 && newline < maxLength / 4 ? tail.slice(newline + 1) : tail}`;
}
