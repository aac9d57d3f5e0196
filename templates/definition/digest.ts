/** The identity of a version: a digest over everything that decides what its snapshot is. */
import { createHash } from 'node:crypto';
import type { VersionDigest } from '../../sdk/index.ts';
import type { TemplateDefinition } from './schema.ts';

/** Raised when the pipeline makes something else of the same input, so that old snapshots are not taken for new ones. */
const pipelineProtocol = 1;

/**
 * JSON with sorted keys and without `undefined` members: equal values give equal text, whatever order they were written
 * in.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`);
    return `{${members.join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** What a version is made of. The digests are `sha256:…` texts. */
export interface VersionParts {
  readonly definition: TemplateDefinition;
  /** Over names, kinds, executable bits and bytes of the template's files; see `publish/content-digest.ts`. */
  readonly contentDigest: string;
  readonly kernelDigest: string;
  readonly initrdDigest: string;
  readonly rootDigest: string;
}

/** The same parts give the same digest on every machine. */
export function versionDigest(parts: VersionParts): VersionDigest {
  const { definition, contentDigest, kernelDigest, initrdDigest, rootDigest } = parts;
  const identity = {
    protocol: pipelineProtocol,
    definition,
    contentDigest,
    kernelDigest,
    initrdDigest,
    rootDigest,
  };
  return `sha256:${createHash('sha256').update(canonicalJson(identity)).digest('hex')}` as VersionDigest;
}
