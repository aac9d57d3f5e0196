/** Bodies of E2B's template build API, strict. */
import { z } from 'zod';
import { GatewayError } from '../../../sdk/index.ts';

const text = z.string().max(65_536);
const tag = z.string().regex(/^(?!v[0-9]+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);

/** `POST /v3/templates`. */
export const buildRequestSchema = z.strictObject({
  name: z.string().min(1).max(200).optional(),
  alias: z.string().min(1).max(200).optional(),
  tags: z.array(tag).max(32).nullish(),
  teamID: z.string().max(200).nullish(),
  cpuCount: z.number().int().min(1).max(16).nullish(),
  memoryMB: z.number().int().min(128).max(32_768).nullish(),
  minFreeDiskMb: z.number().int().min(0).max(262_144).nullish(),
});
export type BuildRequest = z.infer<typeof buildRequestSchema>;

const stepSchema = z.strictObject({
  type: z.enum(['COPY', 'RUN', 'ENV', 'WORKDIR', 'USER']),
  args: z.array(text).max(1000).default([]),
  filesHash: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullish(),
  force: z.boolean().nullish(),
});
export type BuildStep = z.infer<typeof stepSchema>;

/** `POST /v2/templates/{id}/builds/{build}`. */
export const buildStartSchema = z.strictObject({
  fromImage: z.string().max(512).nullish(),
  fromTemplate: z.string().max(200).nullish(),
  fromImageRegistry: z.unknown().optional(),
  steps: z.array(stepSchema).max(60).default([]),
  startCmd: text.nullish(),
  readyCmd: text.nullish(),
  force: z.boolean().nullish(),
});
export type BuildStart = z.infer<typeof buildStartSchema>;

/** Where a build begins. */
export type BuildBase =
  | { readonly kind: 'debian' }
  | { readonly kind: 'template'; readonly template: string };

/** The image that the SDK names when nobody names another. */
const usualImage = /^e2bdev\/base(?::.*)?$/;
const debianImage =
  /^(?:docker\.io\/)?(?:library\/)?debian(?::(?:bookworm|bookworm-slim|stable|stable-slim|12|12-slim|latest))?$/;

/** @throws GatewayError `not_supported_yet` naming `fromImage` or `fromImageRegistry` */
export function baseOf({ fromImage, fromTemplate, fromImageRegistry }: BuildStart): BuildBase {
  if (fromImageRegistry != null) {
    const message = "images of registries can't be built upon yet; use fromTemplate, or Debian as fromImage";
    throw new GatewayError('not_supported_yet', message, { field: 'fromImageRegistry' });
  }
  if (fromImage != null && fromTemplate != null) {
    throw new GatewayError('invalid_request', 'give either "fromImage" or "fromTemplate"', {
      field: 'fromImage',
    });
  }
  if (fromTemplate != null) return { kind: 'template', template: fromTemplate };
  if (fromImage == null || usualImage.test(fromImage)) return { kind: 'template', template: 'base' };
  if (debianImage.test(fromImage)) return { kind: 'debian' };
  const message = `image ${JSON.stringify(fromImage)} can't be built upon yet: use "debian:bookworm", or a template by fromTemplate`;
  throw new GatewayError('not_supported_yet', message, { field: 'fromImage' });
}
