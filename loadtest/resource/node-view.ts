import { createAdminClient, type MachineInfo, type NodeInfo, type PoolInfo } from '../../sdk/index.ts';

/** What the admin API says at one instant. A part that could not be had is `null`. */
export interface NodeView {
  readonly machines: readonly MachineInfo[] | null;
  readonly pools: readonly PoolInfo[] | null;
  readonly nodes: readonly NodeInfo[] | null;
}

/** Asks a gateway about its nodes, machines and pools. Never rejects: a busy server must not end a run. */
export interface NodeApi {
  view(): Promise<NodeView>;
}

/** Limit of one question; a server under overload may answer late or not at all. */
const askTimeoutMs = 2_000;

export function createNodeApi(options: {
  readonly url: string;
  readonly apiKey: string | undefined;
}): NodeApi {
  const client = createAdminClient({
    url: options.url,
    ...(options.apiKey === undefined ? {} : { apiKey: options.apiKey }),
  });
  return {
    async view() {
      const signal = AbortSignal.timeout(askTimeoutMs);
      const [machines, pools, nodes] = await Promise.all([
        client.machines({ signal }).catch(() => null),
        client.pools({ signal }).catch(() => null),
        client.nodes({ signal }).catch(() => null),
      ]);
      return { machines, pools, nodes };
    },
  };
}
