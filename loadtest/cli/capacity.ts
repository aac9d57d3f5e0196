import { Command } from 'commander';
import { type Capacity, findCapacity } from '../capacity/bisect.ts';
import { judgeProbe } from '../capacity/judge.ts';
import { formatMs } from '../gate/format.ts';
import { type RunPlan, runPlanSchema } from '../run/plan.ts';
import { run } from '../run/runner.ts';
import { loadScenario } from '../scenario/registry.ts';
import { guarded, type LoadtestDeps, loadtestExitCodes, print } from './context.ts';
import { duration, numberFrom, wholeFrom } from './parse.ts';
import { addPlanOptions, type PlanFlags, planFrom } from './plan-options.ts';

interface CapacityFlags extends PlanFlags {
  readonly p99: number;
  readonly from: number;
  readonly to: number;
  readonly precision: number;
  readonly maxProbes: number;
  readonly probeTime: number;
  readonly maxFailed: number;
  readonly maxRefused: number;
  readonly json?: boolean;
}

/** A p99 needs a thousand answers, and the warm-up is not among them. */
const answersPerProbe = 1_200;

/** `snapgate loadtest capacity`: the highest rate that holds a p99, and what stopped the next. */
export function capacityCommand(deps: LoadtestDeps): Command {
  return addPlanOptions(
    new Command('capacity')
      .description('find the highest rate that holds a p99, by bisection, and what limits it')
      .argument('[scenario]', 'a request scenario', 'invoke'),
  )
    .option('--p99 <time>', 'goal for latency from the intended instant', duration, 200)
    .option('--from <per-second>', 'first rate', numberFrom(0.1, 100_000), 10)
    .option('--to <per-second>', 'never above this rate', numberFrom(0.1, 1_000_000), 10_000)
    .option('--precision <share>', 'stop when the answer is this close', numberFrom(0.01, 1), 0.05)
    .option('--max-probes <n>', 'runs at the most', wholeFrom(1, 100), 20)
    .option('--probe-time <time>', 'length of a run, longer where a p99 needs it', duration, 10_000)
    .option('--max-failed <share>', 'failures that are allowed', numberFrom(0, 1), 0.001)
    .option('--max-refused <share>', 'refusals that are allowed', numberFrom(0, 1), 0)
    .option('--json', 'print JSON')
    .action(
      guarded(deps, async (name: string, flags: CapacityFlags) => {
        const scenario = await loadScenario(name);
        const plan = planFrom({ ...flags, rate: flags.from }, scenario, name, deps.connection());
        const goal = {
          p99Ms: flags.p99,
          maxFailedShare: flags.maxFailed,
          maxRefusedShare: flags.maxRefused,
        };
        const capacity = await findCapacity(
          async (rate) => {
            const result = await run(planAt(plan, rate, flags.probeTime), scenario, {
              signal: deps.interrupted,
            });
            const probe = judgeProbe(rate, result, goal);
            deps.stderr.write(
              `  ${rateText(rate)}: ${probe.isSustained ? 'holds' : probe.reasons.join('; ')}\n`,
            );
            return probe;
          },
          {
            fromPerSecond: flags.from,
            toPerSecond: flags.to,
            precision: flags.precision,
            maxProbes: flags.maxProbes,
            signal: deps.interrupted,
          },
        );
        await print(
          deps.stdout,
          flags.json ? `${JSON.stringify(capacity, null, 2)}\n` : describe(capacity, goal.p99Ms),
        );
        deps.setExitCode(capacity.ratePerSecond > 0 ? loadtestExitCodes.passed : loadtestExitCodes.failed);
      }),
    );
}

function planAt(plan: RunPlan, ratePerSecond: number, probeMs: number): RunPlan {
  const durationMs = Math.ceil(Math.max(probeMs, (answersPerProbe / ratePerSecond) * 1000)) + plan.warmupMs;
  return runPlanSchema.parse({
    ...plan,
    loop: { kind: 'open', profile: { kind: 'poisson', ratePerSecond, durationMs } },
  });
}

function describe(capacity: Capacity, goalMs: number): string {
  if (capacity.ratePerSecond === 0)
    return `No tried rate holds p99 ${formatMs(goalMs)}. Limited by: ${capacity.limitedBy || 'unknown'}\n`;
  const confirmed = capacity.isConfirmed
    ? 'held twice'
    : 'not confirmed by a second run; take it with a margin';
  return `${rateText(capacity.ratePerSecond)} holds p99 ${formatMs(goalMs)} (${confirmed}).\n${
    capacity.limitedBy === ''
      ? 'No limit was met: raise --to.'
      : `Limited by: ${capacity.limitedBy}. That is what the next higher rate met.`
  }\n${capacity.probes.length} runs with Poisson arrivals.\n`;
}

const rateText = (rate: number): string =>
  `${rate >= 100 ? Math.round(rate) : Number(rate.toPrecision(3))}/s`;
