/** Cuts a byte stream into lines without ever holding more than one line of bounded length. */

/** Longest line taken from a VMM; QEMU's longest answers that we ask for are a few KiB. */
export const maxQmpLineBytes = 1 << 20;

/**
 * @returns a function that takes the next bytes and yields the complete lines (without their end, empty ones left out);
 *   it throws RangeError when a line grows past `maxBytes`.
 */
export function createLineSplitter(maxBytes: number): (chunk: Buffer) => Generator<string> {
  let parts: Buffer[] = [];
  let heldBytes = 0;
  const hold = (bytes: Buffer) => {
    heldBytes += bytes.length;
    if (heldBytes > maxBytes) throw new RangeError(`a line of more than ${maxBytes} bytes`);
    if (bytes.length > 0) parts.push(bytes);
  };
  return function* split(chunk) {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      hold(chunk.subarray(start, end));
      const line = Buffer.concat(parts, heldBytes).toString('utf8').trim();
      parts = [];
      heldBytes = 0;
      start = end + 1;
      if (line !== '') yield line;
    }
    hold(chunk.subarray(start));
  };
}
