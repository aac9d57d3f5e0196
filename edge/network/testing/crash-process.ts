/**
 * An edge in a process of its own that serves a version with a network and then dies as if its power had gone:
 * `node crash-process.ts OPTIONS`, which is JSON as {@link CrashOptions}.
 */
import pino from 'pino';
import type { TemplateName, VersionDigest } from '../../../sdk/index.ts';
import type { EdgeConfig } from '../../config.ts';
import { openEdge } from '../../main.ts';

export interface CrashOptions {
  readonly config: Partial<EdgeConfig> & Pick<EdgeConfig, 'dataDirectory'>;
  readonly outside: string;
  readonly digest: string;
}

const { config, outside, digest } = JSON.parse(process.argv[2] ?? '') as CrashOptions;
const edge = await openEdge(
  {
    log: pino({ level: 'fatal' }),
    onStep: () => {},
    networkOutside: outside,
    signal: new AbortController().signal,
  },
  config,
);
const served = { digest: digest as VersionDigest, template: 'networked' as TemplateName, version: 'v1' };
const [set] = await edge.setServing([served]);
if (set?.error != null) throw new Error(set.error);
process.kill(process.pid, 'SIGKILL');
