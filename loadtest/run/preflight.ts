import { createAdminClient, GatewayError, type NodeInfo } from '../../sdk/index.ts';
import { checkNames } from '../check/check.ts';
import type { LabelVocabulary } from '../gate/catalogue.ts';
import { parseThreshold, type Threshold } from '../gate/expression.ts';
import type { Scenario } from '../scenario/define.ts';
import { profileDurationMs } from '../schedule/profile.ts';
import { expectedDigestsSchema, type RunPlan } from './plan.ts';

/** Beyond, asking for each one's digest would be a load test by itself. */
const maxAskedTemplates = 32;

/** The plan's thresholds and the scenario's own, parsed before anything is sent. */
export function prepareThresholds(plan: RunPlan, scenario: Scenario): Threshold[] {
  const parsed = scenario.options.safeParse(plan.scenarioOptions);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new GatewayError(
      'invalid_request',
      `options of scenario ${scenario.name}: ${issue?.path.join('.')} ${issue?.message}`,
    );
  }
  const vocabulary: LabelVocabulary = {
    template: plan.templates,
    name: scenario.steps ?? [],
    check: Object.keys(checkNames),
  };
  const texts = [...(scenario.thresholds?.(parsed.data) ?? []), ...plan.thresholds];
  const thresholds = texts.map((text) => parseThreshold(text, vocabulary));
  const onSchedule = thresholds.find(
    ({ metric }) => metric.name === 'lag' || metric.name === 'late' || metric.name === 'dropped',
  );
  if (plan.loop.kind === 'closed' && onSchedule !== undefined) {
    throw new GatewayError(
      'invalid_request',
      `threshold \`${onSchedule.text}\`: a closed loop has no schedule, so it has no ${onSchedule.metric.name}`,
    );
  }
  return thresholds;
}

/** Refuses combinations that each part of a plan allows alone. */
export function checkPlan(plan: RunPlan, writesRaw: boolean): void {
  const fail = (message: string) => {
    throw new GatewayError('invalid_request', message);
  };
  if (plan.idempotency && !plan.probe) fail('repeating under a key needs --probe, to tell a second run');
  if (writesRaw && plan.workers > 1) fail('raw samples need --workers 1');
  if (plan.loop.kind === 'open' && plan.warmupMs >= profileDurationMs(plan.loop.profile)) {
    fail('the warm-up is as long as the whole schedule');
  }
  if (plan.loop.kind === 'closed' && plan.warmupMs >= plan.loop.durationMs) {
    fail('the warm-up is as long as the run');
  }
  if (plan.targeting.kind === 'weighted' && plan.targeting.weights.length !== plan.templates.length) {
    fail(`${plan.targeting.weights.length} weights were given for ${plan.templates.length} templates`);
  }
}

/** One connection before a whole schedule is fired at nothing. */
export async function checkReachable(plan: RunPlan): Promise<void> {
  try {
    const answer = await fetch(new URL('/healthz', plan.url), { signal: AbortSignal.timeout(5_000) });
    await answer.body?.cancel();
  } catch (cause) {
    throw new GatewayError('invalid_request', `nothing answers at ${plan.url}; is \`snapgate up\` running?`, {
      field: 'url',
      cause,
    });
  }
}

/**
 * The digests that must answer: those of the plan, else what each template's `latest` points to now. Empty where nobody
 * answers that, and where the scenario itself publishes.
 */
export async function expectDigests(plan: RunPlan, scenario: Scenario): Promise<RunPlan['expectedDigests']> {
  const mayPublish = scenario.kind === 'requests' && scenario.background !== undefined;
  const { templates, expectedDigests } = plan;
  if (mayPublish || templates.length > maxAskedTemplates || Object.keys(expectedDigests).length > 0)
    return expectedDigests;
  const client = adminClient(plan);
  const found = templates.map(async (template) => {
    const { aliases, history } = await client.template(template);
    const targets = aliases.find(({ alias }) => alias === 'latest')?.targets ?? [];
    const digests = targets.flatMap(
      ({ version }) => history.find((one) => one.version === version)?.digest ?? [],
    );
    return [template, digests] as const;
  });
  const known = await Promise.all(found).catch(() => []);
  return expectedDigestsSchema.parse(Object.fromEntries(known.filter(([, digests]) => digests.length > 0)));
}

/** What the nodes say of themselves; `null` where nobody answers that. */
export const askNodes = (plan: RunPlan): Promise<NodeInfo[] | null> =>
  adminClient(plan)
    .nodes()
    .catch(() => null);

const adminClient = (plan: RunPlan) =>
  createAdminClient({
    url: plan.url,
    timeoutMs: 2_000,
    ...(plan.apiKeys[0] === undefined ? {} : { apiKey: plan.apiKeys[0] }),
  });
