import type { z } from 'zod';
import { fromProblem, GatewayError } from '../errors.ts';
import * as wire from '../wire/admin.ts';
import type { BodySource } from './bounded-body.ts';
import { type InvokeAnswer, type InvokeCall, invoke } from './invoke.ts';
import { segment } from './segment.ts';
import { createTransport, type Send, type Transport, type TransportOptions } from './transport.ts';

export type AdminClientOptions = TransportOptions;

export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface LogQuery extends CallOptions {
  readonly template: string;
  /** `v3` or an alias. Default: all versions. */
  readonly version?: string;
  readonly machine?: string;
  /** Default: what the function printed, `stdout` and `stderr`. */
  readonly streams?: readonly wire.LogLine['stream'][];
  /** Lines of history per machine, at most 10,000. Default 100. */
  readonly tail?: number;
  /** Go on with new lines until the iteration ends. */
  readonly follow?: boolean;
}

/** A target of an alias; weights are relative, 1 when left out. */
export interface AliasTarget {
  readonly version: string;
  readonly weight?: number;
}

/**
 * Everything a gateway can be asked, over `fetch` (Node ≥ 20 and browsers). Every method rejects with `GatewayError`:
 * what the gateway sent, `cancelled` when the caller's signal fired, or one for which `isUnreachable` holds. Streams
 * send nothing before they are iterated, and ending the iteration closes their connection.
 */
export interface AdminClient {
  readonly url: string;
  templates(options?: CallOptions): Promise<wire.Template[]>;
  template(name: string, options?: CallOptions): Promise<wire.TemplateDetail>;
  /**
   * Builds and publishes a version from a gzipped tar of a template folder, which is only read as fast as it is sent.
   * The last event is the `result`; a failed build rejects instead.
   */
  publish(name: string, archive: BodySource, options?: CallOptions): AsyncIterable<wire.PublishEvent>;
  removeTemplate(name: string, options?: CallOptions): Promise<void>;
  removeVersion(name: string, version: string, options?: CallOptions): Promise<void>;
  aliases(options?: CallOptions): Promise<wire.Alias[]>;
  setAlias(
    name: string,
    alias: string,
    targets: readonly AliasTarget[],
    options?: CallOptions,
  ): Promise<wire.Alias>;
  /** `latest` cannot be removed. */
  removeAlias(name: string, alias: string, options?: CallOptions): Promise<void>;
  machines(options?: CallOptions): Promise<wire.MachineInfo[]>;
  pools(options?: CallOptions): Promise<wire.PoolInfo[]>;
  nodes(options?: CallOptions): Promise<wire.NodeInfo[]>;
  keys(options?: CallOptions): Promise<wire.KeyInfo[]>;
  /** The answer is the only one that ever carries the key itself. */
  createKey(
    name: string,
    options?: CallOptions & { readonly limits?: Partial<wire.KeyLimits> | undefined },
  ): Promise<wire.CreatedKey>;
  /** What bounds this key, the templates and the nodes, and what is used of it. */
  limits(options?: CallOptions): Promise<wire.LimitInfo[]>;
  removeKey(id: string, options?: CallOptions): Promise<void>;
  logs(query: LogQuery): AsyncIterable<wire.LogLine>;
  /** Calls a template through the function door; a function's own error status is an answer, not an error. */
  invoke(template: string, call?: InvokeCall): Promise<InvokeAnswer>;
}

/** @throws GatewayError `invalid_request` for an unusable `url` */
export function createAdminClient(options: AdminClientOptions): AdminClient {
  const transport = createTransport(options);
  const { done } = transport;
  const items = async <T>(schema: z.ZodType<T>, path: string, call?: CallOptions): Promise<T[]> =>
    (await transport.json(wire.listOf(schema), send('GET', path, call))).items;

  return {
    url: transport.url,
    templates: (call) => items(wire.templateSchema, '/v1/templates', call),
    template: async (name, call) =>
      transport.json(wire.templateDetailSchema, send('GET', template(name), call)),
    publish: (name, archive, call) => publish(transport, name, archive, call),
    removeTemplate: async (name, call) => done(send('DELETE', template(name), call)),
    removeVersion: async (name, version, call) =>
      done(send('DELETE', `${template(name)}/versions/${segment(version)}`, call)),
    aliases: (call) => items(wire.aliasSchema, '/v1/aliases', call),
    setAlias: async (name, alias, targets, call) =>
      transport.json(
        wire.aliasSchema,
        send('PUT', `${template(name)}/aliases/${segment(alias)}`, call, { targets }),
      ),
    removeAlias: async (name, alias, call) =>
      done(send('DELETE', `${template(name)}/aliases/${segment(alias)}`, call)),
    machines: (call) => items(wire.machineSchema, '/v1/machines', call),
    pools: (call) => items(wire.poolSchema, '/v1/pools', call),
    nodes: (call) => items(wire.nodeSchema, '/v1/nodes', call),
    keys: (call) => items(wire.keySchema, '/v1/keys', call),
    createKey: (name, call) =>
      transport.json(wire.createdKeySchema, send('POST', '/v1/keys', call, { name, limits: call?.limits })),
    limits: (call) => items(wire.limitSchema, '/v1/limits', call),
    removeKey: async (id, call) => done(send('DELETE', `/v1/keys/${segment(id)}`, call)),
    logs: (query) =>
      transport.lines(wire.logLineSchema, send('GET', `/v1/logs?${logParameters(query)}`, query)),
    invoke: (name, call) => invoke(transport, name, call),
  };
}

function send(method: string, path: string, call?: CallOptions, json?: unknown): Send {
  return {
    method,
    path,
    ...(json === undefined
      ? {}
      : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(json) }),
    ...(call?.signal === undefined ? {} : { signal: call.signal }),
  };
}

const template = (name: string) => `/v1/templates/${segment(name)}`;

function logParameters(query: LogQuery): URLSearchParams {
  const parameters = new URLSearchParams({ template: query.template });
  if (query.version !== undefined) parameters.set('version', query.version);
  if (query.machine !== undefined) parameters.set('machine', query.machine);
  for (const stream of query.streams ?? []) parameters.append('stream', stream);
  if (query.tail !== undefined) parameters.set('tail', String(query.tail));
  if (query.follow) parameters.set('follow', 'true');
  return parameters;
}

async function* publish(
  transport: Transport,
  name: string,
  archive: BodySource,
  call?: CallOptions,
): AsyncGenerator<wire.PublishEvent> {
  let isFinished = false;
  const request: Send = {
    ...send('POST', `${template(name)}/versions`, call),
    headers: { 'content-type': 'application/gzip', accept: 'application/x-ndjson' },
    body: archive,
  };
  for await (const event of transport.lines(wire.publishEventSchema, request)) {
    if (event.type === 'error') throw fromProblem(event.problem, 'templates');
    isFinished = event.type === 'result';
    yield event;
  }
  if (!isFinished) {
    throw new GatewayError('internal', 'the gateway ended the publish without a result', {
      component: 'sdk',
    });
  }
}
