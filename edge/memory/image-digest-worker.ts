/** Entry of the digest worker threads. */
import { digestFile, type Extents } from './image-digest.ts';

/** One file to digest. */
export interface DigestTask {
  readonly path: string;
  readonly extents: Extents | null;
}

export default (task: DigestTask): string => digestFile(task.path, task.extents);
