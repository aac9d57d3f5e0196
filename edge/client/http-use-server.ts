/** Uses of sandboxes that are held over HTTP: one for as long as its request lasts. */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import type { ChannelDirectory } from './http-channel-server.ts';
import { useHeadSchema, type useLineSchema } from './http-sandbox-wire.ts';
import { readHead } from './http-server-calls.ts';
import { sendLines } from './http-server-json.ts';
import type { SandboxEdge } from './sandbox-port.ts';

/** The gateway lets go by ending its request, and so does a gateway that goes away. */
export async function serveUse(
  edge: SandboxEdge,
  channels: ChannelDirectory,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { head } = await readHead(incoming, useHeadSchema);
  const letGo = once(incoming.resume(), 'end').then(
    () => undefined,
    () => undefined,
  );
  await sendLines(response, async function* (signal): AsyncGenerator<z.input<typeof useLineSchema>> {
    using use = await edge.use(head.id, { signal });
    channels.note(use.machine, use.channel);
    const { machine, sandbox, env } = use;
    yield { machine, sandbox, env: { ...env } };
    await Promise.race([letGo, aborted(use.signal), aborted(signal)]);
    use.signal.throwIfAborted();
  });
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
