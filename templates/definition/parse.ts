/** From unknown input to a definition, or to one error that names what is wrong. */
import { GatewayError } from '../../sdk/index.ts';
import { describeProblems, listProblems, type Problem } from './problems.ts';
import { type TemplateDefinition, type TemplateDefinitionInput, templateDefinitionSchema } from './schema.ts';

/** Valid fields on which this release does not act: refused, since ignoring them would surprise. */
function unsupported(definition: TemplateDefinition): Problem | undefined {
  if (definition.image.oci !== undefined) {
    return {
      field: 'image.oci',
      text: 'container images are not supported yet; use image.debian and image.packages',
    };
  }
  if (definition.secrets.length > 0) {
    return { field: 'secrets', text: 'secrets are not supported yet; nothing would be injected' };
  }
  return undefined;
}

/**
 * Validates untrusted input and fills in defaults.
 * @throws GatewayError `invalid_definition` (field of the first problem, all problems in the message) or
 *   `not_supported_yet` (field)
 */
export function parseDefinition(input: unknown): TemplateDefinition {
  const result = templateDefinitionSchema.safeParse(input);
  if (!result.success) {
    const problems = listProblems(result.error, input);
    throw new GatewayError('invalid_definition', describeProblems(problems), {
      component: 'templates',
      field: problems[0]?.field ?? '(root)',
    });
  }
  const refusal = unsupported(result.data);
  if (refusal !== undefined) {
    throw new GatewayError('not_supported_yet', `${refusal.field}: ${refusal.text}`, {
      component: 'templates',
      field: refusal.field,
    });
  }
  return result.data;
}

/**
 * {@link parseDefinition} of the text of a `template.json`. Plain JSON: a comment could not be kept when the definition is
 * normalised, and who needs one can write a `template.ts`.
 * @throws GatewayError as {@link parseDefinition}
 */
export function parseDefinitionText(text: string): TemplateDefinition {
  let json: unknown;
  try {
    json = JSON.parse(text.startsWith('\ufeff') ? text.slice(1) : text);
  } catch (error) {
    const hint = /^\s*(\/\/|\/\*)|,\s*\/\//m.test(text)
      ? '; comments are not accepted, template.ts may have them'
      : '';
    throw new GatewayError(
      'invalid_definition',
      `template.json is not JSON: ${(error as Error).message}${hint}`,
      {
        component: 'templates',
        field: '(root)',
      },
    );
  }
  return parseDefinition(json);
}

/** Types a `template.ts`; it returns its argument, and the loader validates it. */
export const defineTemplate = (definition: TemplateDefinitionInput): TemplateDefinitionInput => definition;
