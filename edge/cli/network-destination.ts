import { GatewayError } from '../../sdk/index.ts';
import type { Destination } from '../network/rules/explain.ts';

const defaultPorts: Readonly<Record<string, number>> = { 'https:': 443, 'http:': 80 };

/** `https://host`, `http://host`, `tcp://host:port`, `udp://host:port`; hosts or addresses. Throws `invalid_request`. */
export function parseDestination(text: string): Destination {
  const invalid = () =>
    new GatewayError('invalid_request', `not a destination: ${text}`, {
      component: 'edge',
      field: 'destination',
    });
  const url = URL.parse(text);
  if (url === null || !['https:', 'http:', 'tcp:', 'udp:'].includes(url.protocol)) throw invalid();
  const port = url.port === '' ? defaultPorts[url.protocol] : Number(url.port);
  if (port === undefined || port === 0) throw invalid();
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const isAddress = host.includes(':') || /^[\d.]+$/.test(host);
  return {
    protocol: url.protocol === 'udp:' ? 'udp' : 'tcp',
    port,
    ...(isAddress ? { address: host } : { name: host }),
  };
}
