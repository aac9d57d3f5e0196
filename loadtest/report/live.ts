import type { Writable } from 'node:stream';
import { formatMs } from '../gate/format.ts';
import type { Progress } from '../run/progress.ts';

/** Shows a run while it is on. */
export interface LiveView {
  phase(text: string): void;
  progress(progress: Progress, repeat: number): void;
  /** Leaves the last state on the screen. */
  end(): void;
}

/** Between lines when there is no terminal to repaint. */
const lineEveryMs = 5_000;
const barWidth = 30;

/** Repaints three lines on a terminal; elsewhere writes a line now and then. */
export function createLiveView(
  stream: Writable & { readonly isTTY?: boolean },
  options: { readonly title: string; readonly durationMs: number | null; readonly now: () => number },
): LiveView {
  const isTerminal = stream.isTTY === true;
  let painted = 0;
  let phase = '';
  let lastLineAt = Number.NEGATIVE_INFINITY;
  const repaint = (lines: readonly string[]) => {
    if (painted > 0) stream.write(`\u001b[${painted}F\u001b[J`);
    stream.write(`${lines.join('\n')}\n`);
    painted = lines.length;
  };
  return {
    phase(text) {
      phase = text;
      if (isTerminal) repaint([`${options.title}: ${phase}`]);
      else stream.write(`${options.title}: ${phase}\n`);
    },
    progress(progress) {
      const counts = countsOf(progress);
      const waits = `latency p50 ${formatMs(progress.p50Ms)}, p99 ${formatMs(progress.p99Ms)}`;
      if (isTerminal) {
        repaint([
          `${options.title}: ${phase} ${bar(progress.atMs, options.durationMs)}`,
          `  ${counts}`,
          `  ${waits}`,
        ]);
        return;
      }
      const now = options.now();
      if (now - lastLineAt < lineEveryMs) return;
      lastLineAt = now;
      stream.write(`  ${formatMs(Math.max(0, progress.atMs))}: ${counts}; ${waits}\n`);
    },
    end() {
      painted = 0;
    },
  };
}

function countsOf(progress: Progress): string {
  const parts = [`${progress.sent} sent`, `${progress.ok} answered`];
  for (const [count, name] of [
    [progress.refused, 'refused'],
    [progress.failed, 'failed'],
    [progress.timeouts, 'timed out'],
    [progress.dropped, 'dropped'],
    [progress.inFlight, 'open'],
  ] as const) {
    if (count > 0) parts.push(`${count} ${name}`);
  }
  return parts.join(', ');
}

function bar(atMs: number, durationMs: number | null): string {
  if (durationMs === null || durationMs <= 0) return formatMs(Math.max(0, atMs));
  const share = Math.min(1, Math.max(0, atMs / durationMs));
  const filled = Math.round(share * barWidth);
  return `[${'█'.repeat(filled)}${' '.repeat(barWidth - filled)}] ${Math.round(share * 100)} %`;
}
