/**
 * The one parser of function addresses, for requests and upgrades alike: `/fn/{template}[@{ref}]/{path…}` on any host, or
 * any path on `{template}.fn.{domain}`. Everything behind the template stays byte for byte what the client sent; dot
 * segments too, since the template was chosen before them and nothing resolves them on the way.
 */

/** Where a request goes. Neither name has been looked up yet; both may be anything but `/`, `?` and `@`. */
export interface FunctionRoute {
  readonly template: string;
  /** `v3` or an alias; absent: `latest`. */
  readonly ref: string | undefined;
  /** Path and query for the function; starts with `/`. */
  readonly target: string;
  /** What was taken off the path: `/fn/{template}…`, or nothing for host routes. Sent on as `X-Forwarded-Prefix`. */
  readonly prefix: string;
}

/** A request target split into what a reverse proxy needs (RFC 9112 §3.2). */
export interface RequestTarget {
  /** Authority of an absolute-form target, which then overrides `Host`. */
  readonly authority: string | undefined;
  /** Origin form: starts with `/`; or `*`. */
  readonly path: string;
}

const absoluteForm = /^https?:\/\/([^/?#]*)/i;

/** Splits a request target. Null when it is neither origin form, absolute form nor `*`. */
export function splitTarget(target: string): RequestTarget | null {
  if (target.startsWith('/') || target === '*') return { authority: undefined, path: target };
  const match = absoluteForm.exec(target);
  if (match === null || match[1] === '') return null;
  const rest = target.slice(match[0].length);
  return { authority: match[1], path: rest.startsWith('/') ? rest : `/${rest}` };
}

/** Makes the parser for one domain; it answers null for what is no function address. */
export function createRouteParser(domain: string): (host: string, path: string) => FunctionRoute | null {
  const suffix = `.fn.${domain.toLowerCase()}`;
  return (host, path) => (path.startsWith('/fn/') ? byPath(path) : byHost(host, path, suffix));
}

function byPath(path: string): FunctionRoute | null {
  let end = 4;
  for (; end < path.length; end++) {
    const character = path.charCodeAt(end);
    if (character === 0x2f || character === 0x3f) break;
  }
  const segment = decodeSegment(path.slice(4, end));
  if (segment === '') return null;
  const at = segment.indexOf('@');
  const rest = path.slice(end);
  return {
    template: at < 0 ? segment : segment.slice(0, at),
    ref: at < 0 ? undefined : segment.slice(at + 1),
    target: rest.startsWith('/') ? rest : `/${rest}`,
    prefix: path.slice(0, end),
  };
}

function byHost(host: string, path: string, suffix: string): FunctionRoute | null {
  const colon = host.lastIndexOf(':');
  const name = (colon < 0 ? host : host.slice(0, colon)).toLowerCase();
  if (!name.endsWith(suffix)) return null;
  const template = name.slice(0, -suffix.length);
  if (template === '' || template.includes('.')) return null;
  return { template, ref: undefined, target: path, prefix: '' };
}

/** Some clients encode the `@`. A broken escape stays as it is and then names no template. */
function decodeSegment(segment: string): string {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
