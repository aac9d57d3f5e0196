export * from './digest.ts';
export { defineTemplate, parseDefinition } from './parse.ts';
export {
  type TemplateDefinition,
  type TemplateDefinitionInput,
  templateDefinitionSchema,
  templateJsonSchema,
} from './schema.ts';
