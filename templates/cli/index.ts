export { initCommand } from './init.ts';
export type { CommandDeps, PublishingClient, PublishingContext } from './port.ts';
export { publishCommand } from './publish.ts';
export { templatesCommand } from './templates.ts';
