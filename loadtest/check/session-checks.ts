import { type CheckReport, Tally, type Violation } from './check.ts';
import { FingerprintSet } from './fingerprints.ts';
import { canaryPattern } from './probe.ts';
import { clockBoundMs } from './suite.ts';

/** Which step of which session a check is about. */
type CheckedStep = Omit<Violation, 'detail'>;

/** What sessions can have checked, over all sessions of a generator. */
export interface SessionChecks {
  /** The first use of a fresh machine; `failure` is `null` when it succeeded. */
  firstUse(step: CheckedStep, failure: string | null): void;
  /** Hex of at least 8 random bytes of the guest's kernel. Anything else is a violation too. */
  randomBytes(step: CheckedStep, hex: string): void;
  /** Epoch milliseconds of the guest, read between the two instants of this host. */
  guestClock(step: CheckedStep, clockMs: number, askedAt: number, answeredAt: number): void;
  /** The digest that answered is the right one. */
  digest(step: CheckedStep, got: string, expected: string): void;
  /** What ran on the machine, in order, is what was asked to run there. */
  runs(step: CheckedStep, got: readonly string[], expected: readonly string[]): void;
  /** The text holds no canary but `own`. */
  canary(step: CheckedStep, text: string, own: string): void;
  report(): { readonly reports: CheckReport[]; readonly fingerprints: BigUint64Array };
}

export function createSessionChecks(): SessionChecks {
  const nobody = () => '';
  const fresh = new Tally('fresh-clone', nobody);
  const random = new Tally('random-bytes', nobody);
  const clock = new Tally('guest-clock', nobody);
  const digest = new Tally('digest', nobody);
  const runs = new Tally('invocations', nobody);
  const tenant = new Tally('tenant', nobody);
  const seen = new FingerprintSet();
  const all = [fresh, random, clock, digest, runs, tenant];
  return {
    firstUse(step, failure) {
      fresh.saw();
      if (failure !== null) fresh.add({ ...step, detail: failure });
    },
    randomBytes(step, hex) {
      random.saw();
      if (!/^[0-9a-f]{16,}$/.test(hex))
        random.add({ ...step, detail: `\`${hex.slice(0, 40)}\` is not random hex` });
      else if (!seen.add(hex))
        random.add({ ...step, detail: `random bytes ${hex.slice(0, 16)}… were given before` });
    },
    guestClock(step, clockMs, askedAt, answeredAt) {
      clock.saw();
      const behind = askedAt - clockMs;
      const ahead = clockMs - answeredAt;
      if (!(behind <= clockBoundMs && ahead <= clockBoundMs)) {
        clock.add({ ...step, detail: `the guest's clock is ${Math.round(Math.max(behind, ahead))} ms off` });
      }
    },
    digest(step, got, expected) {
      digest.saw();
      if (got !== expected)
        digest.add({ ...step, detail: `digest ${got || 'missing'}, expected ${expected}` });
    },
    runs(step, got, expected) {
      runs.saw();
      const at = expected.findIndex((one, index) => got[index] !== one);
      if (at >= 0)
        runs.add({
          ...step,
          detail: `run ${at} was \`${expected[at]}\` and left \`${got[at] ?? 'nothing'}\``,
        });
      else if (got.length > expected.length)
        runs.add({
          ...step,
          detail: `${got.length} runs of ${expected.length}, the first too many \`${got[expected.length]}\``,
        });
    },
    canary(step, text, own) {
      tenant.saw();
      const other = text.match(canaryPattern)?.find((one) => one !== own);
      if (other !== undefined) tenant.add({ ...step, detail: `holds ${other}, not only its own ${own}` });
    },
    report: () => ({
      reports: all.map((tally) => tally.report()).filter((report) => report.examined > 0),
      fingerprints: seen.values(),
    }),
  };
}
