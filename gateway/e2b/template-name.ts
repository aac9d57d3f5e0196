/** How clients of E2B name templates and snapshots. */

/** Tag of names that carry none. */
export const defaultTag = 'default';

/** `[team/]name[:tag]`; teams are not kept apart here, so theirs is not looked at. Also our own `name@reference`. */
export function parseTemplateName(text: string): {
  readonly name: string;
  readonly reference: string | undefined;
} {
  const base = text.slice(text.lastIndexOf('/') + 1);
  const at = base.search(/[:@]/);
  if (at < 0) return { name: base, reference: undefined };
  const reference = base.slice(at + 1);
  return { name: base.slice(0, at), reference: reference === defaultTag ? undefined : reference };
}
