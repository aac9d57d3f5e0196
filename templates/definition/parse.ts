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
  if (definition.network !== undefined) {
    return { field: 'network', text: 'network rules are not supported yet; machines have no network card' };
  }
  if (definition.secrets.length > 0) {
    return { field: 'secrets', text: 'secrets are not supported yet; nothing would be injected' };
  }
  if (definition.admission.ratePerSecond !== null) {
    return { field: 'admission.ratePerSecond', text: 'rate limits are not supported yet; leave it null' };
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

/** Types a `template.ts`; it returns its argument, and the loader validates it. */
export const defineTemplate = (definition: TemplateDefinitionInput): TemplateDefinitionInput => definition;
