/** `snapgate network explain`: allowed or refused, and by which rule, without sending anything. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { Command } from 'commander';
import { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { type Destination, explain } from '../network/rules/explain.ts';
import { createFloor, type Floor } from '../network/rules/floor.ts';
import { parseRules } from '../network/rules/rules.ts';

/** What the command needs of the program it is part of. */
export interface NetworkCommandDeps {
  readonly context: { readonly workingDirectory: string; readonly stdout: Writable };
  /** Ends the process with this code although the command succeeded. */
  readonly setExitCode: (code: number) => void;
}

const rulesSchema = z.object({ network: z.record(z.string(), z.boolean()).default({}) });

/** The exit code is 0 when the destination is allowed, 1 when it is refused. */
export function networkCommand(deps: NetworkCommandDeps): Command {
  const { context, setExitCode } = deps;
  return new Command('network').description('look at network rules').addCommand(
    new Command('explain')
      .description('say whether rules allow a destination, and which rule decides; nothing is sent')
      .argument('<folder>', 'folder with the template.json whose rules are asked')
      .argument('<destination>', 'https://host, http://host, tcp://host:port or udp://host:port')
      .option('--permit <range...>', 'private ranges that the operator of the node permits', [])
      .option('--json', 'print JSON')
      .action(async (folder: string, target: string, flags: { permit: string[]; json?: boolean }) => {
        const rules = parseRules(
          await readRules(join(resolve(context.workingDirectory, folder), 'template.json')),
        );
        const floor = floorOf(flags.permit);
        const found = explain(rules, floor, parseDestination(target));
        context.stdout.write(
          flags.json
            ? `${JSON.stringify(found)}\n`
            : `${found.verdict === 'allow' ? 'allowed' : 'refused'}: ${found.text}\n`,
        );
        if (found.verdict === 'refuse') setExitCode(1);
      }),
  );
}

function floorOf(permittedRanges: readonly string[]): Floor {
  try {
    return createFloor({ hostAddresses: [], permittedRanges });
  } catch (cause) {
    throw new GatewayError('invalid_request', `--permit: ${(cause as Error).message}`, {
      component: 'edge',
      field: 'permit',
      cause,
    });
  }
}

async function readRules(path: string): Promise<Record<string, boolean>> {
  try {
    return rulesSchema.parse(JSON.parse(await readFile(path, 'utf8'))).network;
  } catch (cause) {
    throw new GatewayError(
      'invalid_definition',
      `${path} could not be read as a template with network rules`,
      { component: 'edge', cause },
    );
  }
}

const defaultPorts: Readonly<Record<string, number>> = { 'https:': 443, 'http:': 80 };

/** Throws `invalid_request`. */
export function parseDestination(text: string): Destination {
  const invalid = (cause?: unknown) =>
    new GatewayError('invalid_request', `not a destination: ${text}`, {
      component: 'edge',
      field: 'destination',
      cause,
    });
  const url = URL.parse(text);
  if (url === null || !['https:', 'http:', 'tcp:', 'udp:'].includes(url.protocol)) throw invalid();
  const port = url.port === '' ? defaultPorts[url.protocol] : Number(url.port);
  if (port === undefined || port === 0) throw invalid();
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const isAddress = host.includes(':') || /^[\d.]+$/.test(host);
  return {
    protocol: url.protocol === 'udp:' ? 'udp' : 'tcp',
    port,
    ...(isAddress ? { address: host } : { name: host }),
  };
}
