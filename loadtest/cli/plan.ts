import { Command, Option } from 'commander';
import { GatewayError } from '../../sdk/index.ts';
import { type MeasuredPeak, type NodePlan, planNodes } from '../capacity/plan-nodes.ts';
import type { SimulatedArrival, SimulatedNode } from '../capacity/simulator-port.ts';
import { formatBytes, formatMs } from '../gate/format.ts';
import type { Result } from '../record/result.ts';
import { mergedSeries, resourceRows } from '../report/figures.ts';
import { readResult } from '../report/write.ts';
import { type TraceOptions, traceFormats, traceOptionsSchema } from '../trace/options.ts';
import { readTrace } from '../trace/source.ts';
import { guarded, type LoadtestDeps, loadtestExitCodes, print } from './context.ts';
import { bytes, duration, numberFrom, wholeFrom } from './parse.ts';

interface PlanNodeFlags {
  readonly format: TraceOptions['format'];
  readonly take?: number;
  readonly skip?: number;
  readonly templates: number;
  readonly nodeMemory: number;
  readonly nodeMachines: number;
  readonly measured?: string;
  readonly replayed?: boolean;
  readonly machineMemory?: number;
  readonly blankMemory: number;
  readonly restore?: number;
  readonly spawn: number;
  readonly prime: number;
  readonly wake: number;
  readonly busy?: number;
  readonly ready: number;
  readonly blank: number;
  readonly max: number;
  readonly idle: number;
  readonly p99Wait: number;
  readonly maxRefused: number;
  readonly maxNodes: number;
  readonly seed: number;
  readonly json?: boolean;
}

/** `snapgate loadtest plan`: nodes and memory for a trace, by the pool simulator. */
export function planCommand(deps: LoadtestDeps): Command {
  return new Command('plan')
    .description('estimate nodes and memory for a trace with the pool simulator')
    .argument('<trace>', 'trace file')
    .addOption(
      new Option('--format <format>', 'columns of the trace')
        .choices([...traceFormats])
        .makeOptionMandatory(),
    )
    .option('--skip <time>', 'leave out the first part', duration)
    .option('--take <time>', 'simulate this much trace time (default 1h)', duration)
    .option('--templates <n>', 'templates over which functions are laid', wholeFrom(1, 10_000), 1_000)
    .option('--node-memory <bytes>', 'memory for machines on a node, such as 16GiB', bytes, 16 * 1024 ** 3)
    .option('--node-machines <n>', 'machines on a node at the most', wholeFrom(1, 100_000), 200)
    .option('--measured <result.json>', 'take restore, work and memory of a machine from this run')
    .option('--replayed', 'the measured run replayed this very trace: check the estimate against it')
    .option('--machine-memory <bytes>', 'memory of a machine that has served, unless measured', bytes)
    .option('--blank-memory <bytes>', 'memory of a blank VMM', bytes, 25 * 1024 ** 2)
    .option('--restore <time>', 'state into a blank VMM until it serves, unless measured', duration)
    .option('--spawn <time>', 'starting a blank VMM', duration, 60)
    .option(
      '--prime <time>',
      'first requests of a restored machine, before anybody waits for it',
      duration,
      300,
    )
    .option('--wake <time>', 'from ready to serving', duration, 15)
    .option('--busy <time>', 'work of an invocation where the trace names none, unless measured', duration)
    .option('--ready <n>', 'ready machines per template', wholeFrom(0, 1_000), 1)
    .option('--blank <n>', 'blank VMMs per template', wholeFrom(0, 1_000), 1)
    .option('--max <n>', 'machines per template at the most', wholeFrom(1, 10_000), 8)
    .option('--idle <time>', 'idle time after which a machine ends', duration, 60_000)
    .option('--p99-wait <time>', 'goal: wait added by the pool', duration, 100)
    .option('--max-refused <share>', 'goal: refusals', numberFrom(0, 1), 0)
    .option('--max-nodes <n>', 'nodes at the most', wholeFrom(1, 10_000), 256)
    .option('--seed <n>', 'decides what the trace leaves open', wholeFrom(0, 2 ** 31 - 1), 1)
    .option('--json', 'print JSON')
    .action(
      guarded(deps, async (file: string, flags: PlanNodeFlags) => {
        const measured = flags.measured === undefined ? null : await readResult(flags.measured);
        const node = nodeFrom(flags, measured);
        const busyMs = flags.busy ?? meanOf(measured, 'exec');
        const trace = traceOptionsSchema.parse({
          file,
          format: flags.format,
          ...(flags.skip === undefined ? {} : { skipMs: flags.skip }),
          ...(flags.take === undefined ? {} : { takeMs: flags.take }),
        });
        async function* arrivals(): AsyncGenerator<SimulatedArrival> {
          for await (const one of readTrace(trace, flags.seed)) {
            const ownMs = one.durationMs > 0 ? one.durationMs : busyMs;
            if (ownMs === null)
              throw missing('the trace names no durations', '--busy 50ms', '--measured result.json');
            yield { atMs: one.atMs, template: one.functionIndex % flags.templates, busyMs: ownMs };
          }
        }
        const plan = await planNodes(
          { simulator: await deps.simulator(), arrivals },
          {
            node,
            goal: { addedWaitP99Ms: flags.p99Wait, maxRefusedShare: flags.maxRefused },
            maxNodes: flags.maxNodes,
            seed: flags.seed,
            measured: flags.replayed ? peakOf(measured) : null,
          },
        );
        await print(
          deps.stdout,
          flags.json ? `${JSON.stringify(plan, null, 2)}\n` : describe(plan, flags, node.machineBytes),
        );
        deps.setExitCode(plan.nodes === null ? loadtestExitCodes.failed : loadtestExitCodes.passed);
      }),
    );
}

function nodeFrom(flags: PlanNodeFlags, measured: Result | null): SimulatedNode {
  const machineBytes =
    flags.machineMemory ??
    (measured === null
      ? undefined
      : resourceRows(measured).find(({ name }) => name === 'memory_per_machine_bytes')?.max);
  if (machineBytes === undefined)
    throw missing('memory of a machine is not known', '--machine-memory 40MiB', '--measured result.json');
  const restoreMs = flags.restore ?? medianRestore(measured);
  if (restoreMs === null)
    throw missing('the time of a restore is not known', '--restore 30ms', '--measured result.json');
  return {
    memoryBytes: flags.nodeMemory,
    maxMachines: flags.nodeMachines,
    machineBytes,
    blankBytes: flags.blankMemory,
    restoreMs,
    spawnMs: flags.spawn,
    primeMs: flags.prime,
    wakeMs: flags.wake,
    ready: flags.ready,
    blank: flags.blank,
    maxPerTemplate: flags.max,
    idleMs: flags.idle,
  };
}

const missing = (what: string, ...ways: string[]): GatewayError =>
  new GatewayError('invalid_request', `${what}: give ${ways.join(' or ')}`);

function medianRestore(result: Result | null): number | null {
  if (result === null) return null;
  const durations = mergedSeries(result, 'restore', (labels) => labels.start === 'restored');
  return durations.count === 0 ? null : durations.percentileMs(50);
}

function meanOf(result: Result | null, metric: string): number | null {
  if (result === null) return null;
  const durations = mergedSeries(result, metric);
  return durations.count === 0 ? null : durations.meanMs;
}

function peakOf(result: Result | null): MeasuredPeak | null {
  if (result === null) return null;
  const max = (wanted: string) => resourceRows(result).find(({ name }) => name === wanted)?.max ?? null;
  return { machines: max('machines'), memoryBytes: max('memory_pss_bytes') };
}

function describe(plan: NodePlan, flags: PlanNodeFlags, machineBytes: number): string {
  const { report } = plan;
  const head =
    plan.nodes === null
      ? `Not even ${flags.maxNodes} nodes hold p99 wait ${formatMs(flags.p99Wait)}.`
      : `${plan.nodes} node${plan.nodes === 1 ? '' : 's'} of ${formatBytes(flags.nodeMemory)} hold p99 wait ${formatMs(flags.p99Wait)}.`;
  const checks = plan.checks.map(({ what, simulated, other, unit, remark }) => {
    const show = (value: number) => (unit === 'bytes' ? formatBytes(value) : String(value));
    return `  ${what}: ${show(simulated)} simulated, ${show(other)} there; ${remark}`;
  });
  const unchecked = flags.replayed
    ? ''
    : '  Not checked against a measured replay: run `loadtest run --trace` and pass its result with --measured and --replayed.\n';
  return `${head}
${report.invocations} invocations, ${report.refused} refused, ${(report.hitRate * 100).toFixed(1)} % met a warm machine, added wait p50 ${formatMs(report.addedWaitP50Ms)}, p99 ${formatMs(report.addedWaitP99Ms)}
at most ${report.peakMachines} machines holding ${formatBytes(report.peakMachines * machineBytes)}, over time ${formatBytes(report.memoryByteHours)} hours
How this was checked:
${checks.join('\n')}
${unchecked}`;
}
