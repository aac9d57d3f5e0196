/** The template definition of DESIGN.md section 6: one strict schema gives validation, types, defaults and JSON Schema. */
import { z } from 'zod';
import { templateNameSchema } from '../../sdk/index.ts';
import {
  argv,
  debianPackage,
  folderPath,
  guestPath,
  guestTarget,
  guestText,
  httpPath,
  isNetworkRule,
  maxListLength,
  userName,
  variableName,
  whole,
} from './fields.ts';

const dayMs = 86_400_000;

const imageSchema = z.strictObject({
  debian: z.enum(['bookworm']).default('bookworm').describe('Debian release of the root filesystem'),
  packages: z.array(debianPackage).max(maxListLength).default([]).describe('Debian packages in the root'),
  oci: z.string().min(1).max(512).optional().describe('reference of a container image; not supported yet'),
});

const copySchema = z.strictObject({
  from: folderPath.describe('file or folder below the template folder'),
  to: guestTarget.describe('absolute path in the guest; the contents of a folder go into it'),
});

const readySchema = z.strictObject({
  http: httpPath.default('/').describe('polled until it answers 2xx'),
  timeoutMs: whole(100, 3_600_000).default(120_000),
});

const startSchema = z.strictObject({
  command: argv,
  user: userName.default('user'),
  cwd: guestPath.default('/'),
  port: whole(1, 65535).describe('TCP port on which the service listens inside the guest'),
  ready: readySchema.prefault({}),
});

const warmupSchema = z.strictObject({
  path: httpPath,
  method: z.enum(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']).default('GET'),
  body: z.string().max(65_536).optional(),
  count: whole(1, 10_000).default(1),
});

const hookSchema = z.strictObject({
  http: httpPath.describe("called on the service's port; must answer 2xx"),
  method: z.enum(['GET', 'POST']).default('POST'),
  timeoutMs: whole(10, 300_000).default(10_000),
});

const hooksSchema = z.strictObject({
  beforeSnapshot: hookSchema.nullable().default(null).describe('after warm-up, before the capture'),
  afterRestore: hookSchema.nullable().default(null).describe('after every restore, before the first request'),
});

const resourcesSchema = z.strictObject({
  vcpus: whole(1, 16).default(1),
  memoryMiB: whole(64, 32_768).default(256),
  diskMiB: whole(64, 262_144).default(1024).describe('size of the writable layer'),
});

const timeOfDay = z.string().regex(/^([01][0-9]|2[0-3]):[0-5][0-9]$/, 'must be HH:MM');

const poolSchema = z
  .strictObject({
    ready: whole(0, 256).default(2).describe('machines kept restored and primed'),
    // Optional rather than defaulted, so that definitions without it keep their digest.
    windows: z
      .array(
        z.strictObject({
          days: z
            .array(z.enum(['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat']))
            .min(1)
            .max(7)
            .optional(),
          from: timeOfDay.describe('UTC'),
          to: timeOfDay.describe('UTC; not after `from`: of the next day'),
          ready: whole(0, 256),
        }),
      )
      .max(16)
      .optional()
      .describe('times of the week with more ready machines'),
    blank: whole(0, 256).default(1).describe('VMM processes kept waiting for state'),
    max: whole(1, 1024).default(8).describe('most machines of this template on one node'),
  })
  .superRefine((pool, context) => {
    for (const key of ['ready', 'blank'] as const) {
      if (pool[key] > pool.max) {
        context.addIssue({
          code: 'custom',
          path: [key],
          message: `must not be above pool.max (${pool.max})`,
        });
      }
    }
    for (const [index, { ready }] of (pool.windows ?? []).entries()) {
      if (ready <= pool.max) continue;
      const message = `must not be above pool.max (${pool.max})`;
      context.addIssue({ code: 'custom', path: ['windows', index, 'ready'], message });
    }
  });

const admissionSchema = z.strictObject({
  concurrency: whole(1, 1000).default(1).describe('requests in one machine at the same time'),
  queue: z
    .strictObject({ depth: whole(0, 100_000).default(64), timeoutMs: whole(0, 600_000).default(5000) })
    .prefault({}),
  ratePerSecond: z
    .number()
    .positive()
    .max(1_000_000)
    .nullable()
    .default(null)
    .describe('calls a second at each gateway, with bursts of one second’s worth; null: no limit'),
});

const ttlSchema = z.strictObject({
  idleMs: whole(100, 30 * dayMs).default(60_000),
  lifetimeMs: whole(1000, 30 * dayMs).default(3_600_000),
  invocationMs: whole(1, dayMs).default(30_000).describe('from hand-over to the head of the answer'),
});

const limitsSchema = z.strictObject({
  bodyBytes: whole(0, 2 ** 40)
    .default(32 * 1024 * 1024)
    .describe('largest request body; more is answered 413'),
});

/** Strict: unknown keys are errors. Cross-field rules are in it, so a parsed definition is consistent. */
export const templateDefinitionSchema = z
  .strictObject({
    name: templateNameSchema,
    image: imageSchema.prefault({}),
    copy: z.array(copySchema).max(maxListLength).default([]),
    run: z.array(guestText(16_384).min(1)).max(64).default([]).describe('shell lines run as root in a guest'),
    env: z.record(variableName, guestText(16_384)).default({}),
    secrets: z.array(variableName).max(64).default([]).describe('not supported yet: leave empty'),
    start: startSchema.optional().describe('absent for templates that only serve sandboxes'),
    warmup: z.array(warmupSchema).max(64).default([]),
    hooks: hooksSchema.prefault({}),
    resources: resourcesSchema.prefault({}),
    pool: poolSchema.prefault({}),
    reuse: z.enum(['never', 'session', 'always']).default('always'),
    maxInvocations: whole(1, 1_000_000_000)
      .optional()
      .describe('a machine is replaced after so many requests'),
    admission: admissionSchema.prefault({}),
    ttl: ttlSchema.prefault({}),
    limits: limitsSchema.prefault({}),
    network: z
      .record(
        z.string().refine(isNetworkRule, 'must be a group, host[:port] or address range[:port]'),
        z.boolean(),
      )
      .optional()
      .describe(
        'what a machine may reach, true or false by group (pypi, npm, debian), host[:port], *.host[:port], address range[:port] or *; absent: no network card, {}: one that reaches nothing',
      ),
    public: z.boolean().default(false).describe('true: callers need no API key'),
  })
  .superRefine((definition, context) => {
    const refuse = (path: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path, message });
    const envLength = Object.entries(definition.env).reduce(
      (sum, [key, value]) => sum + key.length + value.length,
      0,
    );
    // The agent takes a process description of at most 64 KiB; half of it is left for the rest and for escaping.
    if (envLength > 32_768) refuse(['env'], `must hold at most 32768 characters in all, has ${envLength}`);
    if (definition.start !== undefined) return;
    if (definition.warmup.length > 0) refuse(['warmup'], 'needs `start`: there is no service to warm up');
    for (const hook of ['beforeSnapshot', 'afterRestore'] as const) {
      if (definition.hooks[hook] !== null)
        refuse(['hooks', hook], 'needs `start`: there is no service to call');
    }
  });

/** A definition with every default filled in. */
export type TemplateDefinition = z.output<typeof templateDefinitionSchema>;
/** What an author writes. */
export type TemplateDefinitionInput = z.input<typeof templateDefinitionSchema>;

/** What an editor or `snapgate templates schema` needs: JSON Schema (2020-12) of the input form. */
export function templateJsonSchema(): Record<string, unknown> {
  return {
    title: 'Snapgate template definition',
    ...z.toJSONSchema(templateDefinitionSchema, { io: 'input' }),
  };
}
