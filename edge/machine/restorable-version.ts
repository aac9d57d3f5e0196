import type { VersionDigest } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../../templates/index.ts';
import type { MachineShape, SnapshotFiles } from '../vmm/port.ts';

/** All that is needed to make machines of one version. */
export interface RestorableVersion {
  readonly digest: VersionDigest;
  readonly definition: TemplateDefinition;
  readonly shape: MachineShape;
  readonly snapshot: SnapshotFiles;
  /** What the agent inside the snapshot expects of its host; replaced in each clone by its first resume. */
  readonly channelToken: string;
}
