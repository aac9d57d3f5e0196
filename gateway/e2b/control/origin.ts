/** What a `templateID` means: a template, one of its versions, or a snapshot. */
import type { SandboxOrigin } from '../../../edge/client/index.ts';
import { GatewayError, isGatewayError, type SnapshotInfo, type VersionDigest } from '../../../sdk/index.ts';
import { parseTemplateName } from '../template-name.ts';
import type { ControlDeps } from './deps.ts';

/** The snapshot with this id or name; undefined when there is none. */
export async function findSnapshot(
  { sandboxes }: Pick<ControlDeps, 'sandboxes'>,
  text: string,
): Promise<SnapshotInfo | undefined> {
  const { name } = parseTemplateName(text);
  const all = await sandboxes.snapshots({});
  return all.find(({ id }) => id === name) ?? all.find((snapshot) => snapshot.name === name);
}

/**
 * Where a new sandbox's state comes from; a version nobody serves yet is warmed first.
 * @throws GatewayError `template_not_found`, `version_not_found`, `version_unavailable`
 */
export async function originOf(
  deps: Pick<ControlDeps, 'sandboxes' | 'registry' | 'serving'>,
  templateID: string,
  signal: AbortSignal,
): Promise<SandboxOrigin> {
  const { name, reference } = parseTemplateName(templateID);
  try {
    const version = deps.registry.resolve(name, reference);
    await deps.serving.ensure(version, { signal });
    const { template, version: number, digest } = version;
    return { kind: 'version', digest: digest as VersionDigest, template, version: number };
  } catch (error) {
    if (!isGatewayError(error, 'template_not_found')) throw error;
    const snapshot = await findSnapshot(deps, templateID);
    if (snapshot !== undefined) return { kind: 'snapshot', snapshot: snapshot.id };
    throw new GatewayError(
      'template_not_found',
      `there is no template or snapshot ${JSON.stringify(templateID.slice(0, 80))}`,
      {
        field: 'templateID',
      },
    );
  }
}
