/** Headers of an answer as the client shall see them. */
import type { InvokeMeta } from '../../edge/client/index.ts';
import { headerNames, type InvocationTiming } from '../../sdk/index.ts';
import { connectionOptions, isHopByHop } from './hop-by-hop.ts';

/** What the gateway adds to an answer. */
export interface ResponseHeaderFacts {
  readonly requestId: string;
  readonly version: string;
  readonly meta: InvokeMeta;
}

/** Headers ready for `writeHead`, and the length the function promised. */
export interface ResponseHead {
  readonly rawHeaders: string[];
  /** Null: none promised, so the body is chunked (or ends with the connection for HTTP/1.0 clients). */
  readonly contentLength: number | null;
}

/**
 * Ours come first (the first entry of a name in `server-timing` counts), then the function's in their order and case, without
 * hop-by-hop headers and without anything that could pass for ours.
 * @param canHaveTrailers false for answers without chunked body, on which a `Trailer` header would be a lie
 */
export function clientHeaders(
  status: number,
  rawHeaders: readonly string[],
  facts: ResponseHeaderFacts,
  canHaveTrailers: boolean,
): ResponseHead {
  const options = connectionOptions(rawHeaders);
  const headers = [
    headerNames.start,
    facts.meta.start,
    headerNames.machine,
    facts.meta.machine,
    headerNames.version,
    facts.version,
    headerNames.digest,
    facts.meta.digest,
    headerNames.requestId,
    facts.requestId,
    headerNames.timing,
    serverTiming(facts.meta.timing),
  ];
  let contentLength: number | null = null;
  const trailers: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const original = rawHeaders[at]!;
    const name = original.toLowerCase();
    if (isHopByHop(name, options) || name === headerNames.requestId || name.startsWith('x-snapgate-'))
      continue;
    if (name === 'content-length') {
      if (status === 204) continue;
      contentLength = Number(rawHeaders[at + 1]);
    } else if (name === 'trailer') {
      trailers.push(original, rawHeaders[at + 1]!);
      continue;
    }
    headers.push(original, rawHeaders[at + 1]!);
  }
  if (canHaveTrailers && contentLength === null) headers.push(...trailers);
  return { rawHeaders: headers, contentLength };
}

const serverTiming = (timing: InvocationTiming): string =>
  `queue;dur=${milliseconds(timing.queueMs)}, restore;dur=${milliseconds(timing.restoreMs)}, exec;dur=${milliseconds(timing.execMs)}`;

const milliseconds = (value: number): string => String(Math.round(value * 1000) / 1000);

const forbiddenTrailers =
  /^(content-|transfer-encoding|trailer|host|set-cookie|authorization|x-snapgate-|connection|te$)/i;

/** Trailer pairs which may be sent on (RFC 9110 §6.5.1: nothing that frames, routes or authenticates). */
export function clientTrailers(rawTrailers: readonly string[]): [string, string][] {
  const trailers: [string, string][] = [];
  for (let at = 0; at + 1 < rawTrailers.length; at += 2) {
    const name = rawTrailers[at]!;
    if (!forbiddenTrailers.test(name)) trailers.push([name, rawTrailers[at + 1]!]);
  }
  return trailers;
}
