/**
 * Text made elsewhere (a guest, a VMM, a build) for a terminal: every control character except tab and newline is
 * spelled out, so that it cannot move the cursor, recolour, retitle or answer for the user. With `lines: 'one'`
 * newlines are spelled out too, so that one entry cannot pose as two.
 */
export function visibleText(text: string, options: { readonly lines?: 'one' | 'many' } = {}): string {
  const isOneLine = options.lines === 'one';
  return text.replace(unsafe, (character) => {
    if (character === '\n') return isOneLine ? '\\n' : character;
    if (character === '\t') return isOneLine ? '\\t' : character;
    if (character === '\r') return '\\r';
    if (character === '\x1b') return '\\e';
    const code = character.codePointAt(0) ?? 0;
    return code <= 0xff ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

/**
 * C0, DEL and C1 controls; the line and paragraph separators; and what reorders or hides text (bidirectional
 * overrides and isolates, zero-width characters, byte order mark), by which a line can look like another.
 */
const unsafe =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;
