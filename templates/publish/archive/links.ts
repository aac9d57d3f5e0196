/** Decides from names alone whether a symbolic link could lead out of its folder. */
import type { LinkEntry, TreeEntry } from './tree.ts';

// Linux gives up after 40 links as well (path_resolution(7)).
const maxHops = 40;

const stepsOf = (path: string): string[] => path.split('/').filter((step) => step !== '' && step !== '.');

function staysInside(link: LinkEntry, links: ReadonlyMap<string, string>): boolean {
  const position = stepsOf(link.path).slice(0, -1);
  if (link.target.startsWith('/')) return false;
  // Steps still to walk, next one last. A link met on the way is replaced by the steps of its target.
  const pending = stepsOf(link.target).reverse();
  let hops = 0;
  for (let step = pending.pop(); step !== undefined; step = pending.pop()) {
    if (step === '..') {
      if (position.pop() === undefined) return false;
      continue;
    }
    const target = links.get([...position, step].join('/'));
    if (target === undefined) {
      position.push(step);
      continue;
    }
    hops += 1;
    if (target.startsWith('/') || hops > maxHops || pending.length > 4096) return false;
    pending.push(...stepsOf(target).reverse());
  }
  return true;
}

/**
 * The first link that leads out of the folder, has an absolute target, or leads through more than 40 other links.
 * Links to nothing are harmless and allowed. Paths alone don't decide: `a/../..` may be inside while `a` is a folder and
 * outside when `a` is itself a link, so links on the way are followed within the listing.
 */
export function escapingLink(entries: readonly TreeEntry[]): LinkEntry | undefined {
  const links = entries.filter((entry) => entry.kind === 'link');
  const targets = new Map(links.map((link) => [link.path, link.target]));
  return links.find((link) => !staysInside(link, targets));
}
