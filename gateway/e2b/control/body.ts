/** Bodies and queries of the control API. */
import type { Context } from 'hono';
import type { z } from 'zod';
import { GatewayError, isSandboxId, type SandboxId } from '../../../sdk/index.ts';
import type { ApiEnv } from '../../api/router.ts';
import { invalidInput } from '../../errors.ts';

/** A JSON body; an empty one stands for `{}`. @throws GatewayError `invalid_request` naming the field */
export async function readBody<T extends z.ZodType>(
  context: Context<ApiEnv>,
  schema: T,
): Promise<z.output<T>> {
  const text = await context.req.text();
  let value: unknown = {};
  try {
    if (text.trim() !== '') value = JSON.parse(text);
  } catch (cause) {
    throw new GatewayError('invalid_request', 'the body is no JSON', { cause });
  }
  return checked(schema, value);
}

/** A query; fields that come several times are arrays. @throws GatewayError `invalid_request` naming the field */
export function readQuery<T extends z.ZodType>(context: Context<ApiEnv>, schema: T): z.output<T> {
  const all = context.req.queries();
  const value = Object.fromEntries(
    Object.entries(all).map(([name, values]) => [name, values.length === 1 ? values[0] : values]),
  );
  return checked(schema, value);
}

function checked<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw invalidInput(result.error);
}

/** Ids are looked up, not judged. Older clients append something behind a dash. */
export function sandboxIdOf(context: Context<ApiEnv>): SandboxId {
  const [id = ''] = (context.req.param('id') ?? '').split('-', 1);
  if (isSandboxId(id)) return id;
  throw new GatewayError('sandbox_not_found', `there is no sandbox ${id.slice(0, 80)}`, {
    field: 'sandboxID',
  });
}
