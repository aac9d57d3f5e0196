import { readFile, rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { isNodeId, type NodeId, newNodeId } from '../sdk/index.ts';

const nodeFileSchema = z.strictObject({ id: z.string().refine(isNodeId) });

/** The id of this node: read from its file, or drawn and stored on the first start. It is part of every machine id. */
export async function loadNodeId(path: string): Promise<NodeId> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  if (text !== null) return nodeFileSchema.parse(JSON.parse(text)).id as NodeId;
  const id = newNodeId();
  await writeFile(`${path}.new`, JSON.stringify({ id }), { mode: 0o600 });
  await rename(`${path}.new`, path);
  return id;
}
