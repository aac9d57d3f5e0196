export {
  createTemplateRegistry,
  latestAlias,
  type NewVersion,
  type RegistryOptions,
  type TemplateRegistry,
} from './registry.ts';
export type { RegisteredVersion } from './rows.ts';
