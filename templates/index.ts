/** The door to templates: definitions, images, the publish pipeline, the registry and the publishing commands. */
export * from './cli/index.ts';
export * from './definition/index.ts';
export * from './image/index.ts';
export * from './publish/index.ts';
export * from './registry/index.ts';
