import type { SandboxChannel } from '../guest/index.ts';

/** Id of the process that is the template's service. */
export const serviceId = 'service';
const tailBytes = 16 * 1024;

/** The last output of a machine's service, stdout then stderr, at most 16 KiB; guest-made text, not escaped. */
export async function serviceTail(
  channel: SandboxChannel,
  options: { readonly signal: AbortSignal },
): Promise<string> {
  const parts: string[] = [];
  for (const name of ['stdout', 'stderr'] as const) {
    const output = await channel.processOutput(serviceId, name, {
      offset: -tailBytes,
      follow: false,
      signal: options.signal,
    });
    parts.push((await output.setEncoding('utf8').toArray()).join(''));
  }
  return parts.join('').slice(-tailBytes);
}
