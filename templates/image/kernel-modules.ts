import { GatewayError } from '../../sdk/index.ts';

/** Text files which depmod(8) and the kernel's build leave in `lib/modules/<version>/`. */
export interface ModuleIndex {
  /** `modules.dep`: `path: dependency dependency`. */
  readonly dependencies: string;
  /** `modules.softdep`: `softdep name pre: a b post: c`. */
  readonly softDependencies: string;
  /** `modules.builtin`: one path a line. */
  readonly builtin: string;
}

/** `kernel/fs/ext4/ext4.ko.xz` → `ext4`; the kernel treats dash and underscore alike. */
const moduleName = (path: string): string =>
  path
    .slice(path.lastIndexOf('/') + 1)
    .replace(/\.ko(\.(xz|zst|gz))?$/, '')
    .replaceAll('-', '_');

const lines = (text: string): string[] =>
  text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));

/** Softdeps that must be loaded before, by module name. Only `pre:` matters to a loader without aliases. */
function parseSoftDependencies(text: string): Map<string, string[]> {
  const before = new Map<string, string[]>();
  for (const line of lines(text)) {
    const [keyword, name, ...words] = line.trim().split(/\s+/);
    if (keyword !== 'softdep' || name === undefined) continue;
    let section = '';
    for (const word of words) {
      if (word.endsWith(':')) section = word;
      else if (section === 'pre:') {
        const key = name.replaceAll('-', '_');
        before.set(key, [...(before.get(key) ?? []), word.replaceAll('-', '_')]);
      }
    }
  }
  return before;
}

/**
 * Paths of the modules to insert, each after what it needs: what `modprobe --show-depends` would say, without its
 * host configuration. Modules built into the kernel are left out.
 * A soft dependency is followed when it is a module (ext4 wants `crc32c`, an alias which several modules provide: an
 * unknown name is no error there). Throws `build_failed` when a wanted module exists neither as a file nor built in.
 */
export function resolveModules(index: ModuleIndex, wanted: readonly string[]): string[] {
  const needs = new Map<string, { readonly path: string; readonly paths: readonly string[] }>();
  for (const line of lines(index.dependencies)) {
    const colon = line.indexOf(':');
    const path = line.slice(0, colon);
    needs.set(moduleName(path), {
      path,
      paths: line
        .slice(colon + 1)
        .split(' ')
        .filter(Boolean),
    });
  }
  const soft = parseSoftDependencies(index.softDependencies);
  const builtin = new Set(lines(index.builtin).map(moduleName));
  const ordered = new Set<string>();
  const visiting = new Set<string>();
  const visit = (name: string): boolean => {
    const module = needs.get(name);
    if (module === undefined) return builtin.has(name);
    if (ordered.has(module.path) || visiting.has(name)) return true;
    visiting.add(name);
    for (const path of module.paths) visit(moduleName(path));
    for (const other of soft.get(name) ?? []) visit(other);
    visiting.delete(name);
    ordered.add(module.path);
    return true;
  };
  for (const name of wanted) {
    if (!visit(name.replaceAll('-', '_'))) {
      throw new GatewayError('build_failed', `the kernel has no module ${name}`, { component: 'templates' });
    }
  }
  return [...ordered];
}
