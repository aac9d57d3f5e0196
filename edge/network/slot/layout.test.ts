import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type NodeId, newNodeId } from '../../../sdk/index.ts';
import { contains, parseRange } from '../rules/address.ts';
import { maxSlots, slotIndex, slotLayout, uplinkRange, uplinkRange6 } from './layout.ts';

const inRange = (range: string, address: string) => contains(parseRange(range)!, address);

test('uplinks of a node lie in their ranges, differ from each other, and from those of a node beside it', () => {
  for (const node of ['aaaa', 'zzzz', '0000', newNodeId()] as NodeId[]) {
    const seen = new Set<string>();
    for (let index = 0; index < maxSlots; index += 1) {
      const { uplink, uplink6, netns, outsideName } = slotLayout(node, index);
      for (const address of Object.values(uplink)) {
        assert.ok(inRange(uplinkRange, address), address);
        seen.add(address);
      }
      for (const address of Object.values(uplink6)) {
        assert.ok(inRange(uplinkRange6, address), address);
        seen.add(address);
      }
      // Two ends of a /31 and of a /127.
      assert.ok(inRange(`${uplink.outside}/31`, uplink.inside));
      assert.ok(inRange(`${uplink6.outside}/127`, uplink6.inside));
      assert.equal(slotIndex(node, netns), index);
      assert.ok(outsideName.length <= 15);
    }
    assert.equal(seen.size, 4 * maxSlots);
  }
  assert.notEqual(
    slotLayout('abcd' as NodeId, 0).uplink.outside,
    slotLayout('abce' as NodeId, 0).uplink.outside,
  );
});
