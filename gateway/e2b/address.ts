/** Which request is whose: E2B's control API, a port of a sandbox by host or by headers, or none of E2B's. */
import { isIP } from 'node:net';

/** Port of a sandbox on which the gateway itself answers with E2B's envd protocol. */
export const envdPort = 49_983;

/** Where a request goes. `invalid` ones are answered 400 with that text. */
export type E2bAddress =
  | { readonly kind: 'control' }
  | { readonly kind: 'sandbox'; readonly sandbox: string; readonly port: number }
  | { readonly kind: 'invalid'; readonly text: string };

/** What of a request decides. */
export interface AddressFacts {
  /** Value of `Host` or `:authority`. */
  readonly host: string;
  /** With the query. */
  readonly path: string;
  readonly sandboxId: string | undefined;
  readonly sandboxPort: string | undefined;
}

/** First segments of the control API's paths; no other door has them. */
const controlPaths =
  /^\/(?:v2\/sandboxes|v2\/templates|v3\/templates|sandboxes|snapshots|templates|teams|volumes|secrets|health)(?=[/?]|$)/;
/** `{port}-{id}`, and what older clients append to the id. */
const label = /^([0-9]{1,9})-([a-z0-9]+)(?:-[a-z0-9]+)*$/;

const invalid = (text: string): E2bAddress => ({ kind: 'invalid', text });

function portOf(digits: string): number | null {
  const port = Number(digits);
  return /^[0-9]{1,5}$/.test(digits) && port > 0 && port < 65_536 ? port : null;
}

function byHeaders({ sandboxId, sandboxPort }: AddressFacts): E2bAddress {
  if (sandboxId === undefined) return invalid('Missing E2b-Sandbox-Id header');
  if (sandboxPort === undefined) return invalid('Missing E2b-Sandbox-Port header');
  const [id = ''] = sandboxId.split('-', 1);
  if (!/^[a-z0-9]+$/.test(id)) return invalid('Invalid sandbox ID');
  const port = portOf(sandboxPort);
  return port === null ? invalid('Invalid sandbox port') : { kind: 'sandbox', sandbox: id, port };
}

/** The domain that E2B clients are given: a wildcard in a certificate needs a name of at least two labels below it. */
export const e2bDomainOf = (domain: string): string => (domain.includes('.') ? domain : `snapgate.${domain}`);

/**
 * Makes the parser for one domain; it answers null for what is no request of an E2B client. Headers count where the host can't
 * name a sandbox, so that nobody's page on `{port}-{id}.{domain}` reaches another sandbox by sending them.
 */
export function createAddressParser(domain: string): (facts: AddressFacts) => E2bAddress | null {
  const suffix = `.${domain.toLowerCase()}`;
  return (facts) => {
    const name = hostName(facts.host);
    if (name.endsWith(suffix)) {
      const left = name.slice(0, -suffix.length);
      if (left === 'api') return { kind: 'control' };
      if (left === 'sandbox') return byHeaders(facts);
      if (left.includes('.')) return null;
      const match = label.exec(left);
      if (match === null) return invalid('Invalid host');
      const port = portOf(match[1] ?? '');
      return port === null
        ? invalid('Invalid sandbox port')
        : { kind: 'sandbox', sandbox: match[2] ?? '', port };
    }
    const isLocal = name === 'localhost' || isIP(name) !== 0 || name.startsWith('sandbox.');
    if (isLocal && facts.sandboxId !== undefined) return byHeaders(facts);
    return controlPaths.test(facts.path) ? { kind: 'control' } : null;
  };
}

/** Lower-case, without port and brackets. */
function hostName(host: string): string {
  const bracketed = /^\[([^\]]+)\]/.exec(host);
  return (bracketed?.[1] ?? host.replace(/:[0-9]*$/, '')).toLowerCase();
}
