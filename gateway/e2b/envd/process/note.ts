/** What envd tells of a process but the agent does not know: it travels with the agent's record, so it outlives us. */
import { z } from 'zod';

const noteSchema = z.strictObject({
  cmd: z.string(),
  args: z.array(z.string()),
  envs: z.record(z.string(), z.string()),
  cwd: z.string().optional(),
  tag: z.string().optional(),
});
export type ProcessNote = z.infer<typeof noteSchema>;

/** The agent takes 4096 characters of base64url. */
const noteBytes = 3072;
/** Longest text that is kept whole when the note would be too long. */
const shortText = 200;

const encode = (note: ProcessNote): string => Buffer.from(JSON.stringify(note)).toString('base64url');
const fits = (text: string): boolean => text.length <= (noteBytes / 3) * 4;
const shortened = (text: string): string => (text.length > shortText ? `${text.slice(0, shortText)}…` : text);

/** What does not fit is left out, the environment first, then the ends of long arguments; never the tag. */
export function writeNote(note: ProcessNote): string {
  const whole = encode(note);
  if (fits(whole)) return whole;
  const bare = { ...note, envs: {} };
  const cut = { ...bare, cmd: shortened(note.cmd), args: note.args.slice(0, 8).map(shortened) };
  const least = {
    cmd: shortened(note.cmd),
    args: [],
    envs: {},
    ...(note.tag === undefined ? {} : { tag: note.tag }),
  };
  return [bare, cut].map(encode).find(fits) ?? encode(least);
}

/** Null for processes that somebody else started. The text comes from the guest. */
export function readNote(text: string | undefined): ProcessNote | null {
  if (text === undefined) return null;
  try {
    return noteSchema.parse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
  } catch {
    return null;
  }
}
