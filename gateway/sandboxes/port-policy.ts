import type { IncomingHttpHeaders } from 'node:http';
import type { SandboxUse } from '../../edge/client/index.ts';
import type { GatewayError, SandboxId } from '../../sdk/index.ts';

/** What a let-in request takes along. */
export interface PortAdmission {
  /** Lower-case names of headers that carry a credential of ours, which the sandbox's own code must not see. */
  readonly hidden: readonly string[];
  /** `Host` that the server inside is told instead of the client's. */
  readonly host?: string;
  /** Headers of ours for the server inside: name, value … A client's own of these names belong into `hidden`. */
  readonly headers?: (use: Pick<SandboxUse, 'env'>) => readonly string[];
}

/** Who may reach ports through one way of addressing them, and how refusals are worded there. */
export interface PortPolicy {
  /** @throws GatewayError when the request is not let in */
  admit(id: SandboxId, port: number, headers: IncomingHttpHeaders): Promise<PortAdmission>;
  /** The error a client of this way gets for what was thrown. */
  refuse(thrown: unknown, id: SandboxId, port: number): GatewayError;
}
