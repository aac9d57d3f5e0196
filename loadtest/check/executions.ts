import type { Exchange } from '../driver/exchange.ts';

/** Requests remembered; beyond, the oldest are forgotten. A few ten MiB at the most. */
const maxRemembered = 200_000;

/** Where a request ran, and how it ended here. */
interface Request {
  /** `machine` and count there of its one run; empty while no machine named it. */
  ranAt: string;
  isRefused: boolean;
}

/**
 * Which machine ran which of our requests, by what machines say in later answers of the ids that they ran before. So a
 * request that ran on two machines shows although the second run's answer reached nobody, and one that was refused must
 * have run nowhere.
 *
 * What a machine ran last before it ended is told by nobody; the counts of {@link createInvocationsCheck} have the same gap.
 */
export class Executions {
  readonly #requests = new Map<string, Request>();
  readonly #accuse: (exchange: Exchange, detail: string) => void;
  #isTruncated = false;

  /** `accuse` is told of each request that did not run once, with the exchange that showed it. */
  constructor(accuse: (exchange: Exchange, detail: string) => void) {
    this.#accuse = accuse;
  }

  get isTruncated(): boolean {
    return this.#isTruncated;
  }

  /** Machine `exchange.machine` says that request `id` was number `count` there. */
  ran(exchange: Exchange, id: string, count: number): void {
    const place = `${exchange.machine} #${count}`;
    const request = this.#of(id);
    if (request.ranAt === place) return;
    if (request.ranAt !== '') this.#accuse(exchange, `${id} ran twice: at ${request.ranAt} and at ${place}`);
    else if (request.isRefused) this.#accuse(exchange, `${id} was refused, and ran at ${place} all the same`);
    request.ranAt = place;
  }

  /** Admission said no to request `id`. */
  refused(exchange: Exchange, id: string): void {
    const request = this.#of(id);
    request.isRefused = true;
    if (request.ranAt !== '')
      this.#accuse(exchange, `${id} was refused, and ran at ${request.ranAt} all the same`);
  }

  #of(id: string): Request {
    const known = this.#requests.get(id);
    if (known !== undefined) return known;
    if (this.#requests.size >= maxRemembered) {
      this.#isTruncated = true;
      const [oldest] = this.#requests.keys();
      this.#requests.delete(oldest!);
    }
    const request: Request = { ranAt: '', isRefused: false };
    this.#requests.set(id, request);
    return request;
  }
}
