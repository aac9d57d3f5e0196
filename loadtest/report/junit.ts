import type { Result } from '../record/result.ts';

interface Case {
  readonly name: string;
  readonly failure: string | null;
}

/** The result as JUnit XML: one test case per threshold and check, one for the generator, one for leaks. */
export function renderJunit(result: Result): string {
  const name = `loadtest ${result.run.scenario}`;
  const cases = casesOf(result);
  const failures = cases.filter((one) => one.failure !== null).length;
  const seconds = (result.run.measuredMs / 1000).toFixed(3);
  const attributes = `name="${xmlText(name)}" tests="${cases.length}" failures="${failures}" errors="0" skipped="0" time="${seconds}" timestamp="${new Date(result.run.startedAt).toISOString()}"`;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="${xmlText(name)}" tests="${cases.length}" failures="${failures}" time="${seconds}">`,
    `  <testsuite ${attributes}>`,
    ...cases.map(({ name: title, failure }) =>
      failure === null
        ? `    <testcase classname="loadtest.${xmlText(result.run.scenario)}" name="${xmlText(title)}"/>`
        : `    <testcase classname="loadtest.${xmlText(result.run.scenario)}" name="${xmlText(title)}"><failure message="${xmlText(failure)}"/></testcase>`,
    ),
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n');
}

function casesOf(result: Result): Case[] {
  const generator = result.verdict.reasons.filter((reason) => reason.startsWith('the generator'));
  const cases: Case[] = [
    {
      name: 'the generator kept its schedule',
      failure: generator.length === 0 ? null : generator.join('; '),
    },
    { name: 'the run reached its end', failure: result.run.isAborted ? 'ended before its schedule' : null },
    ...result.checks.map((check) => ({
      name: check.promise,
      failure:
        check.violations === 0 ? null : `${check.violations} violations: ${check.samples[0]?.detail ?? ''}`,
    })),
    ...result.thresholds.map((threshold) => ({
      name: threshold.expression,
      failure: threshold.verdict === 'met' ? null : `${threshold.verdict}: ${threshold.shown}`,
    })),
  ];
  if (result.leaks !== null) {
    const { leaked } = result.leaks;
    cases.push({
      name: 'nothing is left behind',
      failure: leaked.length === 0 ? null : leaked.join('; '),
    });
  }
  return cases;
}

/** Attribute text. Control characters, which XML 1.0 can't carry, become spaces. */
const xmlText = (text: string): string =>
  text
    .replaceAll(/\p{Cc}/gu, ' ')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
