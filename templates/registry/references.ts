/** What a caller means by `hello@something`, and the words for when it means nothing. */
import { GatewayError } from '../../sdk/index.ts';
import { numberOf, type RegisteredVersion, type RegistryRows } from './rows.ts';

/** Hex digits of a `sha256:` reference that are enough. */
const minPrefixDigits = 8;

/** A version a reference may lead to, and its share. */
export type Target = { readonly version: RegisteredVersion; readonly weight: number };

/** The errors of the registry. */
export const failure = (
  code: 'template_not_found' | 'version_not_found' | 'conflict' | 'invalid_request',
  text: string,
) => new GatewayError(code, text, { component: 'templates' });

/** Caller's text in a message: quoted and short. */
export const show = (text: string): string => JSON.stringify(text.slice(0, 80));

/**
 * Reads what `reference` leads to: one target for a version or a digest, all of them for an alias.
 * @throws GatewayError `version_not_found`
 */
export function lookUp(rows: RegistryRows, name: string, reference: string): readonly Target[] {
  const one = (version: RegisteredVersion | undefined) =>
    version === undefined ? [] : [{ version, weight: 1 }];
  const notFound = (text: string) => failure('version_not_found', `template ${name} has ${text}`);
  const number = numberOf(reference);
  let targets: readonly Target[];
  if (number !== undefined) targets = one(rows.version(name, number));
  else if (reference.startsWith('sha256:')) {
    if (reference.length < 'sha256:'.length + minPrefixDigits) {
      throw notFound(`no version for ${show(reference)}: at least ${minPrefixDigits} digits are needed`);
    }
    const found = rows.versionsByDigestPrefix(name, reference);
    if (found.length > 1) throw notFound(`several versions whose digest starts with ${show(reference)}`);
    targets = one(found[0]);
  } else {
    const alias = rows.aliases(name).find((row) => row.alias === reference);
    targets = (alias?.targets ?? []).flatMap((target) => {
      const version = rows.version(name, numberOf(target.version) ?? 0);
      return version === undefined ? [] : [{ version, weight: target.weight }];
    });
  }
  if (targets.length === 0) throw notFound(`no version or alias ${show(reference)}`);
  return targets;
}

/** @param random uniform in [0, 1) */
export function draw(targets: readonly Target[], random: () => number): RegisteredVersion {
  const [first] = targets;
  if (targets.length === 1 && first !== undefined) return first.version;
  const total = targets.reduce((sum, { weight }) => sum + weight, 0);
  let point = random() * total;
  for (const { version, weight } of targets) {
    point -= weight;
    if (point < 0) return version;
  }
  // Only reached when rounding ate the last fraction.
  return (targets.at(-1) as Target).version;
}
