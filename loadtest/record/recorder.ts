import type { Exchange } from '../driver/exchange.ts';
import type { DropReason, ScheduleObserver } from '../driver/open-loop.ts';
import { Durations } from './histogram.ts';
import { type Outcome, outcomes, type StartLabel } from './labels.ts';
import { type DurationMetric, type Labels, SeriesSet } from './series.ts';
import { Timeline, type TimelineSnapshot } from './timeline.ts';

/** A launch later than this is counted as late. */
const lateAfterMs = 5;
/** With more templates than this only the hottest, which come first, get series of their own. */
const maxTemplateSeries = 32;
/** Most different error codes kept apart; the rest are counted together. */
const maxErrorCodes = 64;

const maxDetailLength = 300;

/** Whole numbers of a run. `scheduled = sent + dropped`; `sent` is the sum of the outcomes once all settled. */
export interface Counters {
  scheduled: number;
  sent: number;
  late: number;
  droppedInFlight: number;
  droppedBehind: number;
  /** Sent in the warm-up, and in no other figure. */
  warmup: number;
  bodyBytes: number;
}

/** One kind of error with the first request that met it. */
export interface ErrorRecord {
  readonly code: string;
  readonly outcome: Outcome;
  count: number;
  readonly firstSequence: number;
  readonly firstAtMs: number;
  readonly firstStatus: number;
  /** What a session said about it; empty for plain requests. */
  readonly firstDetail: string;
}

interface Bundle {
  readonly latency: Durations;
  readonly service: Durations;
  readonly ttfb: Durations;
  readonly queue: Durations;
  readonly restore: Durations;
  readonly exec: Durations;
}

/** A recording as data: what a generator in another thread sends back. */
export interface RecordingSnapshot {
  readonly series: readonly {
    readonly metric: DurationMetric;
    readonly labels: Labels;
    readonly text: string;
  }[];
  readonly timeline: TimelineSnapshot;
  readonly counters: Counters;
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly errors: readonly ErrorRecord[];
}

/** Takes every sample of one generator. Memory is bounded whatever the run's length or rate. */
export class Recorder implements ScheduleObserver {
  readonly series = new SeriesSet();
  readonly timeline = new Timeline();
  readonly counters: Counters = {
    scheduled: 0,
    sent: 0,
    late: 0,
    droppedInFlight: 0,
    droppedBehind: 0,
    warmup: 0,
    bodyBytes: 0,
  };
  readonly outcomes: Record<Outcome, number> = { ok: 0, refused: 0, failed: 0, timeout: 0 };
  readonly errors = new Map<string, ErrorRecord>();
  private readonly lag = this.series.at('lag');
  private readonly bundles = new Map<StartLabel, Partial<Record<Outcome, Bundle>>>();
  private readonly templateLatency: Durations[] = [];
  private readonly templates: readonly string[];
  private readonly warmupMs: number;

  /** `templates` names the targets in order; samples intended before `warmupMs` are left out of every figure. */
  constructor(options: { readonly templates: readonly string[]; readonly warmupMs: number }) {
    this.templates = options.templates;
    this.warmupMs = options.warmupMs;
  }

  launched(intendedMs: number, lagMs: number): void {
    if (intendedMs < this.warmupMs) {
      this.counters.warmup += 1;
      return;
    }
    this.counters.scheduled += 1;
    this.counters.sent += 1;
    if (lagMs > lateAfterMs) this.counters.late += 1;
    this.lag.record(lagMs);
    this.timeline.launched(intendedMs - this.warmupMs, lagMs);
  }

  dropped(intendedMs: number, reason: DropReason): void {
    if (intendedMs < this.warmupMs) return;
    this.counters.scheduled += 1;
    if (reason === 'in-flight limit') this.counters.droppedInFlight += 1;
    else this.counters.droppedBehind += 1;
    this.timeline.dropped(intendedMs - this.warmupMs);
  }

  /** Records a settled HTTP exchange. */
  settled(exchange: Exchange): void {
    const atMs = exchange.intendedMs - this.warmupMs;
    if (atMs < 0) return;
    const { outcome, start } = exchange;
    this.outcomes[outcome] += 1;
    this.counters.bodyBytes += exchange.bodyBytes;
    const bundle = this.bundle(start, outcome);
    bundle.latency.record(exchange.latencyMs);
    bundle.service.record(exchange.serviceMs);
    if (exchange.status !== 0) bundle.ttfb.record(exchange.firstByteMs - exchange.sentMs);
    if (outcome === 'ok') this.phases(exchange, bundle, atMs);
    if (exchange.target < maxTemplateSeries && (outcome === 'ok' || outcome === 'timeout')) {
      this.ofTemplate(exchange.target).record(exchange.latencyMs);
    }
    this.timeline.ended(atMs, outcome);
    if (outcome === 'ok' || outcome === 'timeout') this.timeline.latency(atMs, start, exchange.latencyMs);
    if (outcome !== 'ok') this.error(exchange.errorCode, outcome, exchange, '');
  }

  /** Records a whole scripted session as one sample; its steps come through {@link Recorder.step}. */
  session(sample: {
    readonly sequence: number;
    readonly intendedMs: number;
    readonly sentMs: number;
    readonly endedMs: number;
    readonly outcome: Outcome;
    readonly errorCode: string;
    readonly status: number;
    readonly detail: string;
  }): void {
    const atMs = sample.intendedMs - this.warmupMs;
    if (atMs < 0) return;
    this.outcomes[sample.outcome] += 1;
    const bundle = this.bundle('unknown', sample.outcome);
    bundle.latency.record(sample.endedMs - sample.intendedMs);
    bundle.service.record(sample.endedMs - sample.sentMs);
    this.timeline.ended(atMs, sample.outcome);
    if (sample.outcome !== 'ok') this.error(sample.errorCode, sample.outcome, sample, sample.detail);
  }

  /** Records a step of a session that was intended at `intendedMs`. Names come from the scenario, so they are few. */
  step(
    intendedMs: number,
    step: {
      readonly name: string;
      readonly start: StartLabel;
      readonly outcome: Outcome;
      readonly ms: number;
    },
  ): void {
    const atMs = intendedMs - this.warmupMs;
    if (atMs < 0) return;
    const { name, start, outcome, ms } = step;
    this.series.at('step', { name, start, outcome }).record(ms);
    if (outcome === 'ok' || outcome === 'timeout') this.timeline.latency(atMs, name, ms);
  }

  snapshot(): RecordingSnapshot {
    return {
      series: [...this.series.values()]
        .filter((series) => series.durations.count > 0)
        .map(({ metric, labels, durations }) => ({ metric, labels, text: durations.encode() })),
      timeline: this.timeline.snapshot(),
      counters: { ...this.counters },
      outcomes: { ...this.outcomes },
      errors: [...this.errors.values()],
    };
  }

  /** Adds what another generator or an earlier repeat recorded. */
  merge(other: RecordingSnapshot): void {
    for (const { metric, labels, text } of other.series) {
      this.series.at(metric, labels).merge(Durations.decode(text));
    }
    this.timeline.merge(Timeline.from(other.timeline));
    for (const key of Object.keys(this.counters) as (keyof Counters)[])
      this.counters[key] += other.counters[key];
    for (const outcome of outcomes) this.outcomes[outcome] += other.outcomes[outcome];
    for (const record of other.errors) {
      const known = this.errors.get(record.code);
      if (known !== undefined) known.count += record.count;
      else if (this.errors.size <= maxErrorCodes) this.errors.set(record.code, { ...record });
    }
  }

  private ofTemplate(target: number): Durations {
    this.templateLatency[target] ??= this.series.at('template_latency', {
      template: this.templates[target] ?? 'unknown',
    });
    return this.templateLatency[target];
  }

  private phases(exchange: Exchange, bundle: Bundle, atMs: number): void {
    const { queueMs, restoreMs, execMs } = exchange;
    if (!Number.isNaN(queueMs)) bundle.queue.record(queueMs);
    if (!Number.isNaN(restoreMs)) bundle.restore.record(restoreMs);
    if (!Number.isNaN(execMs)) bundle.exec.record(execMs);
    if (Number.isNaN(queueMs) && Number.isNaN(restoreMs) && Number.isNaN(execMs)) return;
    this.timeline.phases(atMs, queueMs, restoreMs, execMs, exchange.serviceMs);
  }

  private bundle(start: StartLabel, outcome: Outcome): Bundle {
    let ofStart = this.bundles.get(start);
    if (ofStart === undefined) {
      ofStart = {};
      this.bundles.set(start, ofStart);
    }
    let bundle = ofStart[outcome];
    if (bundle === undefined) {
      const labels = { start, outcome };
      bundle = {
        latency: this.series.at('latency', labels),
        service: this.series.at('service', labels),
        ttfb: this.series.at('ttfb', labels),
        queue: this.series.at('queue', { start }),
        restore: this.series.at('restore', { start }),
        exec: this.series.at('exec', { start }),
      };
      ofStart[outcome] = bundle;
    }
    return bundle;
  }

  private error(code: string, outcome: Outcome, sample: ErrorSample, detail: string): void {
    const key = this.errors.has(code) || this.errors.size < maxErrorCodes ? code : 'other';
    const known = this.errors.get(key);
    if (known !== undefined) {
      known.count += 1;
      return;
    }
    this.errors.set(key, {
      code: key,
      outcome,
      count: 1,
      firstSequence: sample.sequence,
      firstAtMs: Math.round(sample.intendedMs),
      firstStatus: sample.status,
      firstDetail: detail.slice(0, maxDetailLength),
    });
  }
}

type ErrorSample = { readonly sequence: number; readonly intendedMs: number; readonly status: number };
