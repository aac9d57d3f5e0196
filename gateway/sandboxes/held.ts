/** Work that holds a sandbox still while it lasts. */
import type { Readable } from 'node:stream';
import type { SandboxEdge, SandboxUse } from '../../edge/client/index.ts';
import type { SandboxId } from '../../sdk/index.ts';

interface Holding {
  readonly edge: SandboxEdge;
  readonly id: SandboxId;
  /** Of the caller's request. */
  readonly signal: AbortSignal;
}

/** Runs `work` inside one use; its signal also aborts when the sandbox can wait for it no longer. */
export async function withUse<T>(
  { edge, id, signal }: Holding,
  work: (use: SandboxUse, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using use = await edge.use(id, { signal });
  return await work(use, AbortSignal.any([signal, use.signal]));
}

/** A stream out of the sandbox, which is held until the stream is closed. The caller owns the stream. */
export async function streamInUse(
  { edge, id, signal }: Holding,
  open: (use: SandboxUse, signal: AbortSignal) => Promise<Readable>,
): Promise<Readable> {
  using stack = new DisposableStack();
  const use = stack.use(await edge.use(id, { signal }));
  const stream = await open(use, AbortSignal.any([signal, use.signal]));
  const evict = () => stream.destroy(use.signal.reason as Error);
  use.signal.addEventListener('abort', evict, { once: true });
  const held = stack.move();
  stream.once('close', () => {
    use.signal.removeEventListener('abort', evict);
    held.dispose();
  });
  if (use.signal.aborted) evict();
  return stream;
}
