/** Turns the validator's findings into sentences an author can act on. */
import type { z } from 'zod';

const maxProblems = 20;
const maxFoundLength = 80;

/** One thing wrong with a definition. */
export interface Problem {
  /** Dotted path, such as `copy.0.from`; `(root)` for the document itself. */
  readonly field: string;
  /** What was expected and what was found. */
  readonly text: string;
}

type Issue = z.core.$ZodIssue;

/** Dotted path of a finding. */
function fieldOf(path: readonly PropertyKey[]): string {
  return path.length === 0 ? '(root)' : path.map(String).join('.');
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input;
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

/** A short, one-line rendering of what the author wrote. */
function found(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value) ?? typeof value;
  return text.length <= maxFoundLength ? text : `${text.slice(0, maxFoundLength)}…`;
}

function expectation(issue: Issue): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${issue.expected === 'record' ? 'object' : issue.expected}`;
    case 'invalid_value':
      return `expected ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    case 'too_small':
    case 'too_big': {
      const bound = issue.code === 'too_small' ? `at least ${issue.minimum}` : `at most ${issue.maximum}`;
      const unit = issue.origin === 'string' ? ' characters' : issue.origin === 'array' ? ' items' : '';
      return `expected ${bound}${unit}`;
    }
    default:
      return issue.message;
  }
}

function problemsOf(issue: Issue, input: unknown): Problem[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      field: fieldOf([...issue.path, key]),
      text: 'is not a field of a template definition',
    }));
  }
  // The key of a record is what is wrong, and it is the last step of the path already.
  if (issue.code === 'invalid_key') {
    return [{ field: fieldOf(issue.path), text: `bad key: ${issue.issues[0]?.message ?? issue.message}` }];
  }
  return [
    { field: fieldOf(issue.path), text: `${expectation(issue)}, found ${found(valueAt(input, issue.path))}` },
  ];
}

/** Every finding in the order of the schema; long lists are cut by {@link describeProblems}, not here. */
export const listProblems = (error: z.ZodError, input: unknown): Problem[] =>
  error.issues.flatMap((issue) => problemsOf(issue, input));

/** All problems in one message of at most {@link maxProblems} lines. */
export function describeProblems(problems: readonly Problem[]): string {
  const lines = problems.slice(0, maxProblems).map(({ field, text }) => `${field}: ${text}`);
  const rest = problems.length - lines.length;
  return [...lines, ...(rest > 0 ? [`and ${rest} more`] : [])].join('\n');
}
