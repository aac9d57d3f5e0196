export * from './digest.ts';
export { loadDefinition } from './load.ts';
export { defineTemplate, parseDefinition, parseDefinitionText } from './parse.ts';
export {
  type TemplateDefinition,
  type TemplateDefinitionInput,
  templateDefinitionSchema,
  templateJsonSchema,
} from './schema.ts';
