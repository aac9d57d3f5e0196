export { packTemplate } from './archive/pack.ts';
export { type ArchiveLimits, defaultArchiveLimits } from './archive/tree.ts';
export type { BuildDeps } from './build-room.ts';
export { type BuildDeadlines, defaultDeadlines } from './deadlines.ts';
export type { BuildEvent, BuiltEvent, OutputEvent, TaskEvent, TaskState } from './events.ts';
export * from './host-port.ts';
export { type BuildLane, type BuildLaneOptions, createBuildLane } from './lane.ts';
export type { Manifest } from './manifest.ts';
export { buildVersion, rebuildVersion } from './pipeline.ts';
export {
  listVersionDirectories,
  removeVersionFiles,
  sweepVersions,
  versionDirectory,
} from './version-directories.ts';
export {
  fingerprintDifference,
  type Inspection,
  inspectVersion,
  type LoadedVersion,
  loadVersion,
  verifyChecksums,
} from './versions.ts';
