/** Which edge shall answer. One edge for now; a ring over several comes behind the same interface. */
import type { EdgeClient } from '../edge/client/index.ts';
import type { VersionDigest } from '../sdk/index.ts';

/** What a placement may look at. */
export interface PlacementWish {
  readonly digest: VersionDigest;
  readonly session?: string | undefined;
}

export interface Placement {
  /**
   * Edges in the order in which they shall be tried. Never empty. A refusal by one (its own admission is final) makes
   * the gateway try the next.
   */
  candidates(wish: PlacementWish): readonly EdgeClient[];
  /** Every edge known, for listings and for the serving set. */
  edges(): readonly EdgeClient[];
}

/** All requests to the one edge of this process. */
export function singleEdge(edge: EdgeClient): Placement {
  const edges = [edge];
  return { candidates: () => edges, edges: () => edges };
}
