/** Composition root of the all-in-one: gateway and edge in one process, joined by a function call. */

import { dataLayout, openEdge, type StartStep } from '../edge/index.ts';
import {
  certificateDirectory,
  createLog,
  drainMs,
  openGateway,
  type RunningService,
  type ServiceOptions,
} from './runtime.ts';

export interface UpOptions extends ServiceOptions {
  /** Told of each step of the start. */
  readonly onStep?: StartStep;
  /** Ends a start that is under way. */
  readonly signal?: AbortSignal;
  /** pino level. Default `info`. */
  readonly logLevel?: string;
}

/** Starts both and resolves when the gateway listens; `ready` of the answer tells when machines wait. */
export async function up(options: UpOptions): Promise<RunningService> {
  const log = createLog(options.logLevel ?? 'info');
  const layout = dataLayout(options.dataDirectory);
  const edge = await openEdge(
    {
      log,
      onStep: options.onStep ?? ((title) => log.info({ step: title }, 'starting')),
      signal: options.signal ?? new AbortController().signal,
    },
    { dataDirectory: options.dataDirectory },
  );
  try {
    const gateway = await openGateway(
      { edge, log, sandboxes: edge.sandboxes },
      {
        ...{ listen: options.listen, domain: options.domain, tls: options.tls },
        paths: { ...layout, tls: certificateDirectory(options.dataDirectory) },
      },
    );
    let closing: Promise<void> | undefined;
    return {
      ...gateway,
      close() {
        closing ??= gateway.close().finally(() => edge.close({ deadlineMs: drainMs }));
        return closing;
      },
    };
  } catch (error) {
    await edge.dispose();
    throw error;
  }
}
