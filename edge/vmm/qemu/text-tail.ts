/** The last bytes of something that never ends, made safe to show. */

export interface TextTail {
  append(chunk: Buffer): void;
  /** The newest text, control characters escaped; at most the tail's size in characters before escaping. */
  text(): string;
}

/** Keeps at most `maxBytes`, and up to as many again between two cuts. */
export function createTextTail(maxBytes: number): TextTail {
  let chunks: Buffer[] = [];
  let heldBytes = 0;
  const cut = () => {
    const whole = Buffer.concat(chunks, heldBytes);
    // A copy: a subarray would keep the socket's whole read buffer alive.
    chunks = [Buffer.from(whole.subarray(-maxBytes))];
    heldBytes = chunks[0]?.length ?? 0;
  };
  return {
    append(chunk) {
      chunks.push(Buffer.from(chunk.subarray(-maxBytes)));
      heldBytes += Math.min(chunk.length, maxBytes);
      if (heldBytes > 2 * maxBytes) cut();
    },
    text() {
      cut();
      return escapeControls(chunks[0]?.toString('utf8') ?? '');
    },
  };
}

/**
 * Guest bytes must not steer a terminal or forge log lines: carriage returns are dropped, and every other control or
 * invisible character but newline and tab is shown as an escape.
 */
export function escapeControls(text: string): string {
  return text
    .replaceAll('\r', '')
    .replace(/[^\P{C}\n\t]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16) ?? '?'}}`);
}
