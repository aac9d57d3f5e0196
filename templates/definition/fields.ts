/** Building blocks of the definition schema: one schema per kind of value, each with its bound. */
import { isIP } from 'node:net';
import { z } from 'zod';

/** Longest list of anything in a definition. */
export const maxListLength = 256;

// The guest's agent takes NUL-terminated strings; a NUL in the middle would silently cut them.
const withoutNul = /^[^\0]*$/;

/** Text for the guest: no NUL, at most `maxLength` characters. */
export const guestText = (maxLength: number) =>
  z.string().max(maxLength).regex(withoutNul, 'must not contain a NUL character');

/** A program and its arguments, executed without a shell. */
export const argv = z.array(guestText(8192)).min(1).max(64).describe('program and arguments, no shell');

/** Request path with optional query, as it goes on the request line. */
export const httpPath = z
  .string()
  .max(2048)
  .regex(/^\/[!-~]*$/, 'must start with / and hold no spaces or control characters (percent-encode them)');

const hasParentStep = (path: string): boolean => path.split('/').includes('..');

/** Absolute path inside the guest. */
export const guestPath = guestText(1024)
  .startsWith('/', 'must be an absolute path inside the guest')
  .refine((path) => !hasParentStep(path), 'must not contain ..');

/** Where copied files may go: kernel filesystems are not part of a snapshot's disk. */
export const guestTarget = guestPath.refine(
  (path) => !/^\/+(proc|sys|dev)(\/|$)/.test(path),
  'must not be under /proc, /sys or /dev',
);

/** Path below the template's folder, with `/` between its steps; `.` is the folder itself. */
export const folderPath = z
  .string()
  .min(1)
  .max(1024)
  .regex(/^[^\0\\]*$/, 'must not contain a backslash or NUL')
  .refine(
    (path) => !path.startsWith('/') && !hasParentStep(path),
    'must be a path inside the template folder: relative and without ..',
  );

/** Name of an environment variable or of a secret. */
export const variableName = z
  .string()
  .max(128)
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be letters, digits and _, not starting with a digit');

/** Name of an account inside the guest. */
export const userName = z
  .string()
  .regex(/^[a-z_][a-z0-9_-]{0,31}$/, 'must be a user name of the guest, such as user or root');

/** Debian package name (Debian policy 5.6.7). */
export const debianPackage = z
  .string()
  .max(128)
  .regex(/^[a-z0-9][a-z0-9+.-]+$/, 'must be a Debian package name');

/** A whole number with both bounds inclusive. */
export const whole = (min: number, max: number) => z.int().min(min).max(max);

const hostRule = /^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/;
const groupRule = /^[a-z][a-z0-9-]{0,62}$/;

function isAddressRange(text: string): boolean {
  const [address = '', prefix, ...rest] = text.replace(/^\[([^\]]*)\]/, '$1').split('/');
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  if (prefix === undefined) return true;
  return /^\d{1,3}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128);
}

/** Key of a network rule: a group (`pypi`), or a host, an address range or `*` (all), each with an optional `:port`. */
export function isNetworkRule(text: string): boolean {
  if (text.length > 280) return false;
  if (text === '*' || groupRule.test(text) || isAddressRange(text)) return true;
  const colon = text.lastIndexOf(':');
  const [target, port] = colon === -1 ? [text, undefined] : [text.slice(0, colon), text.slice(colon + 1)];
  if (port !== undefined && !(/^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65535)) return false;
  return target === '*' || hostRule.test(target) || isAddressRange(target);
}
