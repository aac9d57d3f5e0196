/**
 * What every `EdgeClient` must do, whatever is between it and the edge. Run by the in-process pair, which is the edge itself,
 * and by each transport. The suite plays the edge.
 */
import { describe } from 'node:test';
import { testCalls } from './contract-calls.ts';
import { testChannel } from './contract-channel.ts';
import { testControl } from './contract-control.ts';
import type { OpenPair, OpenSandboxes } from './contract-peers.ts';
import { sampleSandbox, testSandboxes } from './contract-sandboxes.ts';
import { testTunnels } from './contract-tunnels.ts';

/** Registers the suite under a name. */
export function describeEdgeClient(name: string, open: OpenPair): void {
  describe(name, () => {
    testCalls(open);
    testTunnels(open);
    testControl(open);
  });
}

/** The same for the sandboxes of an edge: uses, channels and tunnels cross as if there were nothing between. */
export function describeSandboxes(name: string, open: OpenSandboxes): void {
  describe(name, () => {
    testSandboxes(open);
    testChannel(open, sampleSandbox);
  });
}
