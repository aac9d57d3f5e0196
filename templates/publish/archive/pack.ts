/** Packs a template folder for upload: the normalised definition and exactly what it copies, nothing else. */
import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { GatewayError } from '../../../sdk/index.ts';
import { canonicalJson, type TemplateDefinition } from '../../definition/index.ts';
import { escapingLink } from './links.ts';
import { copySourcePath, readCopySource } from './sources.ts';
import { type ArchiveLimits, byPath, defaultArchiveLimits, type TreeEntry } from './tree.ts';
import { membersOf, type TarMember, writeTar } from './write-tar.ts';

/** Name of the definition at the root of an archive. */
export const definitionFileName = 'template.json';

function definitionMember(definition: TemplateDefinition): TarMember {
  const source = Buffer.from(canonicalJson(definition));
  const entry = { kind: 'file', path: definitionFileName, size: source.length, isExecutable: false } as const;
  return { entry, name: definitionFileName, source };
}

/**
 * Everything is looked at before the first byte is sent, so a missing file fails at once. The same folder gives the same
 * bytes on every machine.
 * @returns a gzipped tar; destroying it stops the packing
 * @throws GatewayError `invalid_definition` naming `copy.N.from`, or `invalid_request` for files that can't be packed
 */
export async function packTemplate(
  folder: string,
  definition: TemplateDefinition,
  limits: ArchiveLimits = defaultArchiveLimits,
): Promise<Readable> {
  const entries = new Map<string, TreeEntry>();
  for (const [index, { from }] of definition.copy.entries()) {
    for (const entry of await readCopySource(folder, from, `copy.${index}.from`, limits))
      entries.set(entry.path, entry);
  }
  // A copy of the whole folder meets the author's definition; the normalised one stands in for it.
  entries.delete(definitionFileName);
  const sorted = [...entries.values()].sort(byPath);
  const link = escapingLink(sorted);
  if (link !== undefined) {
    const index = definition.copy.findIndex(({ from }) => isBelow(link.path, copySourcePath(from)));
    throw new GatewayError(
      'invalid_definition',
      `copy.${index}.from: ${link.path} is a link to ${link.target}, which leads out of the template folder`,
      { component: 'templates', field: `copy.${index}.from` },
    );
  }
  const tar = Readable.from(writeTar([definitionMember(definition), ...membersOf(folder, sorted)]), {
    objectMode: false,
  });
  const gzip = createGzip();
  // Both directions: a reader that goes away ends the reading of files, a file that fails ends the upload.
  tar.on('error', (error) => gzip.destroy(error));
  gzip.on('close', () => tar.destroy());
  return tar.pipe(gzip);
}

const isBelow = (path: string, folder: string): boolean =>
  folder === '.' || path === folder || path.startsWith(`${folder}/`);
