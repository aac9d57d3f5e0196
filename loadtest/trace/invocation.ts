/** One invocation of a trace, in trace time. */
export interface TraceInvocation {
  /** Milliseconds from the start of the file's time. */
  readonly atMs: number;
  /** Functions are numbered as they are first met. */
  readonly functionIndex: number;
  /** How long it ran; 0 when the format doesn't say. */
  readonly durationMs: number;
}

/** Invocations of one function in one interval, for the formats that only count. */
export interface TraceCount {
  readonly functionIndex: number;
  readonly count: number;
}

/** An interval of a counting format, with every function that was called in it. */
export interface CountBucket {
  readonly startMs: number;
  readonly lengthMs: number;
  readonly counts: readonly TraceCount[];
}

/** The part of trace time to read: `[fromMs, toMs)`. */
export interface TraceWindow {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Numbers functions in the order in which they are met. */
export class FunctionIndex {
  private readonly byKey = new Map<string, number>();

  of(key: string): number {
    let index = this.byKey.get(key);
    if (index === undefined) {
      index = this.byKey.size;
      this.byKey.set(key, index);
    }
    return index;
  }
}
