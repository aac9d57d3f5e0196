/** `snapgate doctor`: what this host has, what it lacks, and the command that fixes it. */
import { join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { Command } from 'commander';
import { visibleText } from '../../sdk/index.ts';
import { type DoctorCheck, type DoctorReport, hostProbes, runDoctor } from '../doctor/index.ts';
import { nodeAcceleratorCheck } from './accelerator-check.ts';

/** What the command needs of the program it is part of. */
export interface DoctorCommandDeps {
  readonly context: {
    /** Absolute; a relative `--data` is seen from here. */
    readonly workingDirectory: string;
    readonly stdout: Writable;
    readonly interrupted: AbortSignal;
  };
  /** Absolute; where a node of this user keeps its files unless `--data` says otherwise. */
  readonly dataDirectory: string;
  /** Ends the process with this code although the command succeeded. */
  readonly setExitCode: (code: number) => void;
  /** Default: the real host. */
  readonly examine?: (options: ExamineOptions) => Promise<DoctorReport>;
}

export interface ExamineOptions {
  readonly dataDirectory: string;
  readonly isProbeForced: boolean;
  readonly signal: AbortSignal;
}

interface Flags {
  readonly data?: string;
  readonly probe?: boolean;
  readonly json?: boolean;
}

/** The exit code is 1 when something has to be fixed before machines can run, 0 otherwise. */
export function doctorCommand(deps: DoctorCommandDeps): Command {
  const { context, setExitCode } = deps;
  const examine = deps.examine ?? examineHost;
  return new Command('doctor')
    .description('check what this host has and lacks, and show the command that fixes it')
    .option('--data <directory>', 'data directory to check (SNAPGATE_DATA)')
    .option('--probe', 'try KVM again with a probe boot, whatever is remembered')
    .option('--json', 'print JSON')
    .action(async (flags: Flags) => {
      const report = await examine({
        dataDirectory:
          flags.data === undefined ? deps.dataDirectory : resolve(context.workingDirectory, flags.data),
        isProbeForced: flags.probe ?? false,
        signal: context.interrupted,
      });
      const text = flags.json ? `${JSON.stringify(report, null, 2)}\n` : renderReport(report);
      await new Promise<void>((done, fail) => {
        context.stdout.write(text, (error) => (error ? fail(error) : done()));
      });
      if (report.status === 'fail') setExitCode(1);
    });
}

const marks: Readonly<Record<DoctorCheck['status'], string>> = { ok: '✔', warn: '!', fail: '✘' };

/** One line for each check, its fix below it, and what it comes to. */
export function renderReport({ checks, status }: DoctorReport): string {
  const width = Math.max(...checks.map(({ title }) => title.length), 0);
  const lines = checks.flatMap(({ title, status: mark, detail, fix }) => [
    `${marks[mark]} ${title.padEnd(width)}  ${visibleText(detail, { lines: 'one' })}`,
    ...(fix === undefined ? [] : [`  ${' '.repeat(width)}  → ${visibleText(fix, { lines: 'one' })}`]),
  ]);
  const count = (wanted: DoctorCheck['status']) => checks.filter((check) => check.status === wanted).length;
  const verdict = {
    ok: 'This host has everything.',
    warn: `Machines can run here; ${plural(count('warn'), 'thing')} could be better.`,
    fail: `${plural(count('fail'), 'thing')} must be fixed before machines can run here.`,
  }[status];
  return `${lines.join('\n')}\n\n${verdict}\n`;
}

const plural = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`;

function examineHost({ dataDirectory, isProbeForced, signal }: ExamineOptions): Promise<DoctorReport> {
  const root = join(import.meta.dirname, '../..');
  const agentPath = join(root, 'templates/agent/build/agent');
  const shimPath = join(root, 'edge/native/build/map-private.so');
  return runDoctor(
    {
      probes: hostProbes(),
      extraChecks: [nodeAcceleratorCheck({ dataDirectory, agentPath, shimPath, isProbeForced })],
    },
    {
      dataDirectory,
      nativeParts: [
        { title: 'guest agent', path: agentPath },
        { title: 'mapping shim', path: shimPath },
        { title: 'data lister', path: join(root, 'edge/native/build/data-extents') },
        ...['netns-sockets', 'slot-nft', 'tap-launch'].map((name) => ({
          title: name,
          path: join(root, 'edge/network/native/build', name),
        })),
      ],
      signal,
    },
  );
}
