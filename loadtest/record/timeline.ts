import { Durations } from './histogram.ts';
import type { Outcome } from './labels.ts';

/** Most intervals kept. When a run outgrows them, neighbours are merged and the interval doubles. */
const maxCells = 360;
/** Most curves: start types of requests, or steps of sessions. Later ones share the lane `other`. */
const maxLanes = 16;

/** One interval as it is recorded: histograms, so that intervals, workers and repeats merge without averaging. */
interface TimelineCell {
  readonly sent: number;
  readonly dropped: number;
  readonly maxLagMs: number;
  readonly outcomes: Readonly<Record<Outcome, number>>;
  /** Encoded histograms of latency by lane: the start type of requests, or the step of sessions. */
  readonly latency: Readonly<Record<string, string>>;
  /** Sums over `phaseCount` answers that named their phases, milliseconds. */
  readonly queueMs: number;
  readonly restoreMs: number;
  readonly execMs: number;
  readonly phaseTotalMs: number;
  readonly phaseCount: number;
}

/** A timeline as data, fit for a message between threads. */
export interface TimelineSnapshot {
  readonly intervalMs: number;
  readonly cells: readonly TimelineCell[];
}

interface Cell extends Omit<MutableCell, 'latency'> {
  latency: Record<string, Durations>;
}
type MutableCell = { -readonly [K in keyof TimelineCell]: TimelineCell[K] } & {
  outcomes: Record<Outcome, number>;
};

const emptyCell = (): Cell => ({
  sent: 0,
  dropped: 0,
  maxLagMs: 0,
  outcomes: { ok: 0, refused: 0, failed: 0, timeout: 0 },
  latency: {},
  queueMs: 0,
  restoreMs: 0,
  execMs: 0,
  phaseTotalMs: 0,
  phaseCount: 0,
});

/** Everything over time, by the instant an arrival was intended. Memory is bounded whatever the run's length. */
export class Timeline {
  private cells: Cell[] = [];
  private readonly lanes = new Set<string>();
  intervalMs: number;

  constructor(intervalMs = 1000) {
    this.intervalMs = intervalMs;
  }

  launched(atMs: number, lagMs: number): void {
    const cell = this.cellAt(atMs);
    cell.sent += 1;
    if (lagMs > cell.maxLagMs) cell.maxLagMs = lagMs;
  }

  dropped(atMs: number): void {
    this.cellAt(atMs).dropped += 1;
  }

  ended(atMs: number, outcome: Outcome): void {
    this.cellAt(atMs).outcomes[outcome] += 1;
  }

  /** Adds a latency to a lane. Leave out refusals and failures: they are quick, and would flatter the curve. */
  latency(atMs: number, lane: string, latencyMs: number): void {
    const { latency } = this.cellAt(atMs);
    const name = this.lanes.has(lane) || this.lanes.size < maxLanes ? lane : 'other';
    this.lanes.add(name);
    latency[name] ??= new Durations(2);
    latency[name].record(latencyMs);
  }

  /** Adds the phases of an answer; those which it did not name count as 0. */
  phases(atMs: number, queueMs: number, restoreMs: number, execMs: number, totalMs: number): void {
    const cell = this.cellAt(atMs);
    cell.queueMs += queueMs || 0;
    cell.restoreMs += restoreMs || 0;
    cell.execMs += execMs || 0;
    cell.phaseTotalMs += totalMs;
    cell.phaseCount += 1;
  }

  merge(other: Timeline): void {
    while (this.intervalMs < other.intervalMs) this.coarsen();
    const ratio = this.intervalMs / other.intervalMs;
    for (const [index, cell] of other.cells.entries()) {
      add(this.cellAt(Math.floor(index / ratio) * this.intervalMs), cell);
    }
  }

  snapshot(): TimelineSnapshot {
    return {
      intervalMs: this.intervalMs,
      cells: this.cells.map((cell) => ({
        ...cell,
        latency: Object.fromEntries(
          Object.entries(cell.latency).map(([start, latency]) => [start, latency.encode()]),
        ),
      })),
    };
  }

  static from(snapshot: TimelineSnapshot): Timeline {
    const timeline = new Timeline(snapshot.intervalMs);
    timeline.cells = snapshot.cells.map((cell) => ({
      ...cell,
      outcomes: { ...cell.outcomes },
      latency: Object.fromEntries(
        Object.entries(cell.latency).map(([start, text]) => [start, Durations.decode(text)]),
      ),
    }));
    return timeline;
  }

  /** The cells in order, for reading. */
  entries(): readonly (Omit<Cell, 'latency'> & { latency: Record<string, Durations> })[] {
    return this.cells;
  }

  private cellAt(atMs: number): Cell {
    let index = Math.max(0, Math.floor(atMs / this.intervalMs));
    while (index >= maxCells) {
      this.coarsen();
      index = Math.floor(atMs / this.intervalMs);
    }
    while (this.cells.length <= index) this.cells.push(emptyCell());
    return this.cells[index]!;
  }

  private coarsen(): void {
    this.intervalMs *= 2;
    const merged: Cell[] = [];
    for (const [index, cell] of this.cells.entries()) {
      const into = merged[index >> 1];
      if (into === undefined) merged.push(cell);
      else add(into, cell);
    }
    this.cells = merged;
  }
}

function add(into: Cell, from: Cell): void {
  into.sent += from.sent;
  into.dropped += from.dropped;
  into.maxLagMs = Math.max(into.maxLagMs, from.maxLagMs);
  for (const outcome of Object.keys(into.outcomes) as Outcome[])
    into.outcomes[outcome] += from.outcomes[outcome];
  for (const [start, latency] of Object.entries(from.latency)) {
    into.latency[start] ??= new Durations(2);
    into.latency[start].merge(latency);
  }
  into.queueMs += from.queueMs;
  into.restoreMs += from.restoreMs;
  into.execMs += from.execMs;
  into.phaseTotalMs += from.phaseTotalMs;
  into.phaseCount += from.phaseCount;
}
