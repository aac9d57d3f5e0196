/** Options which many commands share. This file is on the path of `--help`: it loads commander and nothing else. */
import { type Command, InvalidArgumentError, Option } from 'commander';

/** What {@link addConnectionOptions} and {@link addVerboseOption} add to a command. */
export interface SharedFlags {
  readonly url?: string;
  readonly apiKey?: string;
  readonly verbose?: boolean;
}

/** Adds `--url` and `--api-key` to a command, or to those of its subcommands that are named. */
export function addConnectionOptions(command: Command, which: 'all' | 'none' | readonly string[]): void {
  for (const leaf of leaves(command)) {
    if (which === 'none' || (which !== 'all' && !which.includes(leaf.name()))) continue;
    addUnlessThere(leaf, '--url <url>', 'address of the gateway (SNAPGATE_URL)');
    addUnlessThere(leaf, '--api-key <key>', 'its key (SNAPGATE_API_KEY); a local gateway needs neither');
  }
}

/** Adds `--verbose` to a command, or to each of its subcommands. */
export function addVerboseOption(command: Command): void {
  for (const leaf of leaves(command)) addUnlessThere(leaf, '--verbose', 'show the cause of an error');
}

function leaves(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
}

function addUnlessThere(command: Command, flags: string, description: string): void {
  const option = new Option(flags, description);
  if (!command.options.some(({ long }) => long === option.long)) command.addOption(option);
}

/** Parser of an option that is a whole number from `min` to `max`. */
export const wholeNumber =
  (min: number, max: number) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^[0-9]+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    }
    return value;
  };

/** Parser of an option that may be given several times. */
export const collected = (text: string, before: readonly string[] = []): readonly string[] => [
  ...before,
  text,
];
