import type { Readable } from 'node:stream';
import { isGatewayError } from '../../sdk/index.ts';
import { unreachable } from './errors.ts';

/** Longest line the guest may send: a path of 4 KiB in which every byte is escaped, twice, and the rest of a row. */
const lineBytesMax = 64 * 1024;

/**
 * The lines of a body, each parsed as JSON and checked. The body is destroyed when the reader stops early and when the
 * guest sends anything else.
 * @throws GatewayError `guest_unreachable`, or what ended the body
 */
export async function* jsonLines<T>(body: Readable, check: (value: unknown) => T): AsyncGenerator<T> {
  let pending: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
      for (let end = pending.indexOf(10); end >= 0; end = pending.indexOf(10)) {
        yield check(JSON.parse(pending.toString('utf8', 0, end)));
        pending = pending.subarray(end + 1);
      }
      if (pending.length > lineBytesMax) throw unreachable('the guest sent an endless line');
    }
    if (pending.length > 0) throw unreachable('the guest sent half a line');
  } catch (error) {
    throw isGatewayError(error)
      ? error
      : unreachable('the guest sent something that is no line of JSON', error);
  } finally {
    body.destroy();
  }
}
