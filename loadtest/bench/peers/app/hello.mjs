// The work of every contender: a table that takes a moment to build, and an answer that looks something up in it.
const table = new Map();
for (let number = 0; number < 50_000; number += 1) table.set(`word-${number}`, number * number);

let served = 0;

/** Body of an answer. `served` tells whether the instance has memory of earlier requests. */
export function answer() {
  served += 1;
  return `${JSON.stringify({ served, found: table.get(`word-${served % table.size}`), size: table.size })}\n`;
}
