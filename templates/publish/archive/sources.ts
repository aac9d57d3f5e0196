/** Finds what a `copy` rule names inside a template folder. */
import { GatewayError } from '../../../sdk/index.ts';
import { type ArchiveLimits, readEntry, readTree, type TreeEntry } from './tree.ts';

/** `./a//b/` → `a/b`; the whole folder is `.`. */
export function copySourcePath(from: string): string {
  const steps = from.split('/').filter((step) => step !== '' && step !== '.');
  return steps.length === 0 ? '.' : steps.join('/');
}

/**
 * @param field dotted path of the rule, for the error
 * @returns the file or folder at `from` and all below it
 * @throws GatewayError `invalid_definition` when nothing is there or the way to it is a link
 */
export async function readCopySource(
  folder: string,
  from: string,
  field: string,
  limits: ArchiveLimits,
): Promise<TreeEntry[]> {
  const path = copySourcePath(from);
  const refuse = (text: string) =>
    new GatewayError('invalid_definition', `${field}: ${text}`, { component: 'templates', field });
  const steps = path === '.' ? [] : path.split('/');
  for (let length = 1; length <= steps.length; length += 1) {
    const step = steps.slice(0, length).join('/');
    const entry = await readEntry(folder, step);
    if (entry === undefined)
      throw refuse(`expected a file or folder in the template folder, found nothing at ${step}`);
    if (entry.kind === 'link') throw refuse(`${step} is a symbolic link; name what it points to`);
  }
  return readTree(folder, path, limits);
}
