import { Command } from 'commander';
import { type SandboxInfo, type SnapshotInfo, sandboxStates, visibleText } from '../../../sdk/index.ts';
import { write, writeJson } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { stateOf } from './list.ts';

/** One line of the tree and what hangs from it. */
interface TreeNode {
  readonly kind: 'sandbox' | 'snapshot';
  readonly id: string;
  readonly label: string;
  readonly children: readonly TreeNode[];
}

/** `snapgate sandbox tree`: who came from whom. */
export function treeCommand({ context, snapgate }: SandboxCommandDeps): Command {
  return new Command('tree')
    .description('draw which sandboxes and snapshots came from which')
    .argument('[id]', 'only the tree below this sandbox or snapshot')
    .option('--json', 'print JSON')
    .action(async (id: string | undefined, { json }: { json?: boolean }) => {
      const { sandboxes } = snapgate();
      const signal = context.interrupted;
      const all: SandboxInfo[] = [];
      for await (const { info } of sandboxes.list({ states: sandboxStates, signal })) all.push(info);
      const roots = lineage(all, await sandboxes.snapshots({ signal }));
      const shown = id === undefined ? roots : roots.flatMap((root) => below(root, id));
      await (json ? writeJson(context, shown) : write(context.stdout, renderTree(shown)));
    });
}

/**
 * Roots are sandboxes made from templates, and whatever came from something that is forgotten. A sandbox that ended and left
 * nothing is not shown.
 */
function lineage(sandboxes: readonly SandboxInfo[], snapshots: readonly SnapshotInfo[]): TreeNode[] {
  const byId = new Map(snapshots.map((one) => [one.id, one]));
  const known = new Set([...sandboxes, ...snapshots].map(({ id }) => id));
  const parts: Part[] = [
    ...sandboxes.map((info) => ({ kind: 'sandbox' as const, info, parent: info.parent?.id ?? null })),
    ...snapshots.map((info) => ({ kind: 'snapshot' as const, info, parent: parentOf(info, byId) })),
  ].sort(
    // Siblings of one fork may be of the same millisecond; their order shall not change from call to call.
    (one, other) => one.info.createdAt - other.info.createdAt || (one.info.id < other.info.id ? -1 : 1),
  );
  const byParent = Map.groupBy(parts, ({ parent }) => (parent !== null && known.has(parent) ? parent : null));
  const nodesOf = (parent: string | null): TreeNode[] =>
    (byParent.get(parent) ?? []).flatMap((part): TreeNode[] => {
      const { kind, info } = part;
      const children = nodesOf(info.id);
      if (part.kind === 'snapshot') return [{ kind, id: info.id, label: snapshotLabel(part.info), children }];
      if (part.info.state === 'ended' && children.length === 0) return [];
      return [{ kind, id: info.id, label: sandboxLabel(part.info), children }];
    });
  return nodesOf(null);
}

type Part = { readonly parent: string | null } & (
  | { readonly kind: 'sandbox'; readonly info: SandboxInfo }
  | { readonly kind: 'snapshot'; readonly info: SnapshotInfo }
);

/** A snapshot hangs from the one before it while that is of the same sandbox, else from the sandbox. */
function parentOf({ parent, sandbox }: SnapshotInfo, byId: ReadonlyMap<string, SnapshotInfo>): string {
  return parent !== null && byId.get(parent)?.sandbox === sandbox ? parent : sandbox;
}

const sandboxLabel = (info: SandboxInfo): string =>
  `${info.id}  ${info.template}@${info.version}  ${stateOf(info)}`;

const snapshotLabel = ({ id, name, isPinned }: SnapshotInfo): string =>
  `◆ ${id}  snapshot${name === null ? '' : `:${name}`}${isPinned ? '  pinned' : ''}`;

const below = (node: TreeNode, id: string): TreeNode[] =>
  node.id === id ? [node] : node.children.flatMap((child) => below(child, id));

/** Lines with branches drawn in front. Labels stay one line each, whatever they hold. */
function renderTree(roots: readonly TreeNode[]): string {
  const lines: string[] = [];
  const draw = (node: TreeNode, first: string, rest: string) => {
    lines.push(first + visibleText(node.label, { lines: 'one' }));
    for (const [index, child] of node.children.entries()) {
      const isLast = index === node.children.length - 1;
      draw(child, `${rest}${isLast ? '└─ ' : '├─ '}`, `${rest}${isLast ? '   ' : '│  '}`);
    }
  };
  for (const root of roots) draw(root, '', '');
  return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
}
