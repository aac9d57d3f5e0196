/** Whether the host's kernel kills processes for want of memory. */
import { readFile } from 'node:fs/promises';

/** Kills since boot, of all memory groups; null on a host that does not count them. */
export type OomKills = () => Promise<number | null>;

/** From Linux 4.13 on. */
export const hostOomKills: OomKills = async () => {
  const text = await readFile('/proc/vmstat', 'utf8').catch(() => '');
  const count = /^oom_kill (\d+)$/m.exec(text)?.[1];
  return count === undefined ? null : Number(count);
};

/** Compares with the last sample, so that an old kill does not explain a new death. */
export class NodePressure {
  readonly #count: OomKills;
  #sampled: number | null = null;

  constructor(count: OomKills) {
    this.#count = count;
  }

  /** To be called every second or so. */
  async sample(): Promise<void> {
    this.#sampled = await this.#count();
  }

  /** Whether something was killed since the last sample. */
  async hasKilled(): Promise<boolean> {
    const now = await this.#count();
    return now !== null && this.#sampled !== null && now > this.#sampled;
  }
}
