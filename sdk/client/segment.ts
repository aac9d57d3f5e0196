import { GatewayError } from '../errors.ts';

/**
 * One path segment. `fetch` would resolve a dot segment to another route, so those are refused.
 * @throws GatewayError `invalid_request`
 */
export function segment(value: string): string {
  if (value === '' || value === '.' || value === '..' || value.length > 200) {
    throw new GatewayError('invalid_request', `"${value.slice(0, 20)}" is not a usable name`, {
      component: 'sdk',
    });
  }
  return encodeURIComponent(value);
}

/** `?a=1&b=2` of the values that are there; empty when none is. */
export function queryOf(
  values: Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>,
): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) parameters.append(name, String(one));
  }
  const text = parameters.toString();
  return text === '' ? '' : `?${text}`;
}
