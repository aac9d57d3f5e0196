import type { PoolSimulator, SimulatedArrival, SimulatedNode, SimulationReport } from './simulator-port.ts';

/** What the planned nodes must hold. */
export interface NodePlanGoal {
  /** Wait that the pool adds, p99, milliseconds. */
  readonly addedWaitP99Ms: number;
  /** Share of invocations that may be refused, 0–1. */
  readonly maxRefusedShare: number;
}

/** How the estimate was checked: a figure of the simulation beside the same figure from elsewhere. */
interface EstimateCheck {
  readonly what: string;
  readonly simulated: number;
  readonly other: number;
  readonly unit: 'machines' | 'bytes';
  readonly remark: string;
}

export interface NodePlan {
  /** `null` when even the most nodes allowed did not hold the goal. */
  readonly nodes: number | null;
  readonly report: SimulationReport;
  readonly checks: readonly EstimateCheck[];
}

/** Peak of a replay of the same trace on a real server. */
export interface MeasuredPeak {
  readonly machines: number | null;
  readonly memoryBytes: number | null;
}

/**
 * Finds the smallest number of nodes whose simulation holds the goal, by doubling and bisection, and sets the estimate
 * beside what the trace alone demands (most invocations open at once) and, where given, beside a measured replay.
 * `arrivals` is called once per simulation and must give the same arrivals each time.
 */
export async function planNodes(
  deps: { readonly simulator: PoolSimulator; readonly arrivals: () => AsyncIterable<SimulatedArrival> },
  options: {
    readonly node: SimulatedNode;
    readonly goal: NodePlanGoal;
    readonly maxNodes: number;
    readonly seed: number;
    readonly measured: MeasuredPeak | null;
  },
): Promise<NodePlan> {
  const demand = await demandOf(deps.arrivals());
  const { node, seed } = options;
  const simulate = (nodes: number) =>
    deps.simulator.simulate(deps.arrivals(), { nodes, node, seed, templatePeaks: demand.templatePeaks });
  const holds = (report: SimulationReport) =>
    report.addedWaitP99Ms <= options.goal.addedWaitP99Ms &&
    report.refused <= options.goal.maxRefusedShare * Math.max(1, report.invocations);

  let low = 0;
  let high = 1;
  let report = await simulate(high);
  while (!holds(report) && high < options.maxNodes) {
    low = high;
    high = Math.min(options.maxNodes, high * 2);
    report = await simulate(high);
  }
  if (!holds(report)) return { nodes: null, report, checks: check(demand.peak, options, report) };
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    const tried = await simulate(middle);
    if (holds(tried)) {
      high = middle;
      report = tried;
    } else {
      low = middle;
    }
  }
  return { nodes: high, report, checks: check(demand.peak, options, report) };
}

function check(
  demand: number,
  options: Parameters<typeof planNodes>[1],
  report: SimulationReport,
): EstimateCheck[] {
  const checks: EstimateCheck[] = [
    {
      what: 'machines, against the most invocations of the trace open at once',
      simulated: report.peakMachines,
      other: demand,
      unit: 'machines',
      remark:
        report.peakMachines >= demand
          ? 'the simulation holds at least what the trace demands, plus its floor'
          : 'fewer than the trace demands: the simulation queued or refused the rest',
    },
  ];
  const { measured, node } = options;
  if (measured?.machines != null) {
    checks.push({
      what: 'machines, against a measured replay',
      simulated: report.peakMachines,
      other: measured.machines,
      unit: 'machines',
      remark: apart(report.peakMachines, measured.machines),
    });
  }
  if (measured?.memoryBytes != null) {
    const simulated = report.peakMachines * node.machineBytes;
    checks.push({
      what: 'memory, against a measured replay',
      simulated,
      other: measured.memoryBytes,
      unit: 'bytes',
      remark: apart(simulated, measured.memoryBytes),
    });
  }
  return checks;
}

const apart = (simulated: number, measured: number): string =>
  measured === 0 ? 'the replay measured nothing' : `${Math.round((simulated / measured - 1) * 100)} % apart`;

/** What a trace asks for by itself: most arrivals whose work overlaps, of all templates together and of each. */
interface Demand {
  readonly peak: number;
  readonly templatePeaks: readonly number[];
}

/** Ends wait in heaps, whose sizes are the answer itself. */
export async function demandOf(arrivals: AsyncIterable<SimulatedArrival>): Promise<Demand> {
  const all = new OpenWork();
  const byTemplate: OpenWork[] = [];
  for await (const { atMs, busyMs, template } of arrivals) {
    all.add(atMs, busyMs);
    while (byTemplate.length <= template) byTemplate.push(new OpenWork());
    byTemplate[template]!.add(atMs, busyMs);
  }
  return { peak: all.peak, templatePeaks: byTemplate.map(({ peak }) => peak) };
}

class OpenWork {
  peak = 0;
  readonly #ends: number[] = [];

  add(atMs: number, busyMs: number): void {
    const ends = this.#ends;
    while (ends.length > 0 && ends[0]! <= atMs) popEarliest(ends);
    push(ends, atMs + busyMs);
    this.peak = Math.max(this.peak, ends.length);
  }
}

function push(heap: number[], value: number): void {
  let index = heap.length;
  heap.push(value);
  while (index > 0) {
    const parent = (index - 1) >> 1;
    if (heap[parent]! <= value) break;
    heap[index] = heap[parent]!;
    index = parent;
  }
  heap[index] = value;
}

function popEarliest(heap: number[]): void {
  const last = heap.pop()!;
  if (heap.length === 0) return;
  let index = 0;
  for (;;) {
    let child = 2 * index + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && heap[child + 1]! < heap[child]!) child += 1;
    if (heap[child]! >= last) break;
    heap[index] = heap[child]!;
    index = child;
  }
  heap[index] = last;
}
