/** Branded identifiers. All of them are lower-case and safe in host names, paths and logs. */

declare const brand: unique symbol;
type Branded<T extends string> = string & { readonly [brand]: T };

/** 20 characters of `[a-z0-9]`; the first four name the owning node (see {@link nodeOfMachine}). */
export type MachineId = Branded<'MachineId'>;
/** A sandbox carries the id of the machine that first served it, so it matches {@link MachineId}'s form. */
export type SandboxId = Branded<'SandboxId'>;
/** Four characters of `[a-z0-9]`, drawn once per node and kept in its data directory. */
export type NodeId = Branded<'NodeId'>;
/** `[a-z0-9-]{1,63}`, neither starting nor ending with a dash. */
export type TemplateName = Branded<'TemplateName'>;
/** `sha256:<64 hex>` over everything that decides what a version is. */
export type VersionDigest = Branded<'VersionDigest'>;

const machineIdPattern = /^[a-z0-9]{20}$/;
const nodeIdPattern = /^[a-z0-9]{4}$/;
const digestPattern = /^sha256:[0-9a-f]{64}$/;
export const templateNamePattern = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

export const isMachineId = (text: string): text is MachineId => machineIdPattern.test(text);
export const isSandboxId = (text: string): text is SandboxId => machineIdPattern.test(text);
export const isNodeId = (text: string): text is NodeId => nodeIdPattern.test(text);
export const isVersionDigest = (text: string): text is VersionDigest => digestPattern.test(text);
export const isTemplateName = (text: string): text is TemplateName => templateNamePattern.test(text);

const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** Random text over `[a-z0-9]`; unbiased, because bytes past the largest multiple of 36 are dropped. */
export function randomName(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(length * 2))) {
      if (byte < 252 && text.length < length) text += alphabet[byte % 36];
    }
  }
  return text;
}

/** A new node id. */
export const newNodeId = (): NodeId => randomName(4) as NodeId;
/** A new machine id that names its node, so that no routing table can be lost. */
export const newMachineId = (node: NodeId): MachineId => `${node}${randomName(16)}` as MachineId;
/** The node which owns a machine or a sandbox. */
export const nodeOfMachine = (id: MachineId | SandboxId): NodeId => id.slice(0, 4) as NodeId;
/** The twelve hex digits shown to people in place of a whole digest. */
export const shortDigest = (digest: VersionDigest): string => digest.slice(7, 19);
