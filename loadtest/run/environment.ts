import { execFile } from 'node:child_process';
import { cpus, loadavg, release, totalmem, type } from 'node:os';
import { promisify } from 'node:util';
import type { NodeInfo } from '../../sdk/index.ts';
import type { Result } from '../record/result.ts';
import { isLoopback } from '../resource/sampler.ts';

/** Version of the harness in results; raised with what it measures or how. */
const harnessVersion = '0.1.0';

/** The machine and the versions behind a result's figures. */
export async function describeEnvironment(
  url: string,
  nodes: readonly NodeInfo[] | null,
): Promise<Result['environment']> {
  const processors = cpus();
  return {
    harness: harnessVersion,
    revision: await revisionOf(import.meta.dirname),
    node: process.version,
    kernel: `${type()} ${release()}`,
    cpu: processors[0]?.model.trim() ?? 'unknown',
    cores: processors.length,
    memoryBytes: totalmem(),
    loadAverage: Math.round((loadavg()[0] ?? 0) * 100) / 100,
    isSameHost: isLoopback(url),
    server: (nodes ?? []).map((node) => ({
      node: node.id,
      accelerator: node.accelerator,
      reason: node.acceleratorReason,
      maxMachines: node.maxMachines,
    })),
  };
}

/** The commit of the checkout, with `+` when it has changes; `null` outside of one. */
async function revisionOf(directory: string): Promise<string | null> {
  const git = async (...args: string[]) =>
    (await promisify(execFile)('git', args, { cwd: directory })).stdout.trim();
  try {
    const [commit, changes] = await Promise.all([
      git('rev-parse', '--short=12', 'HEAD'),
      git('status', '--porcelain', '--untracked-files=no'),
    ]);
    return changes === '' ? commit : `${commit}+`;
  } catch {
    return null;
  }
}
