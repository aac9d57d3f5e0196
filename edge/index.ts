/** The door to the edge folder. Its composition root is `main.ts`; gateways talk to it through `client/index.ts`. */
export { dataLayout, type EdgeConfig, edgeConfigSchema } from './config.ts';
export type { Edge } from './edge.ts';
export { type OpenEdgeDeps, openEdge, type StartStep } from './main.ts';
export { readTlsFiles, type ServeEdgeOptions, serveEdge } from './serve.ts';
