/** Steps of a build as scripts that run in the guest, one a step. */
import { GatewayError } from '../../../sdk/index.ts';
import type { BuildStep } from './schemas.ts';

/** What steps leave for those after them, and for commands in sandboxes. */
export interface BuildState {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string;
  /** Null: the user's home directory. */
  readonly workdir: string | null;
}

export interface ScriptedStep {
  /** Bash, to be run as root. */
  readonly script: string;
  /** Archive that it unpacks, by the hash that its client gave it. */
  readonly files: string | null;
  readonly state: BuildState;
  /** For logs. */
  readonly title: string;
}

/** What a template begins with. */
export const firstState: BuildState = { env: {}, user: 'user', workdir: null };

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
const bad = (message: string, step: number) =>
  new GatewayError('invalid_request', `step ${step + 1}: ${message}`, { field: `steps.${step}` });
const userPattern = /^[a-z_][a-z0-9_-]{0,31}$/;
const variablePattern = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

/** Runs `command` as a user of the guest, with the env and in the directory of the state. */
function runAs({ env, workdir }: BuildState, user: string, command: string): string {
  const pairs = Object.entries(env).map(([name, value]) => quote(`${name}=${value}`));
  const words = ['env', `HOME="$home"`, `USER=${user}`, ...pairs, '/bin/bash', '-l', '-c', quote(command)];
  const cd = workdir === null ? 'cd "$home"' : `cd ${quote(workdir)}`;
  return `home=$(getent passwd ${user} | cut -d: -f6)\n${cd}\nrunuser -u ${user} -- ${words.join(' ')}`;
}

/** A path that is relative to the work directory. */
const absolute = (path: string, { workdir, user }: BuildState): string => {
  if (path.startsWith('/')) return quote(path);
  const rest = quote(path.startsWith('~/') ? path.slice(2) : path);
  if (workdir !== null && !path.startsWith('~/')) return `${quote(`${workdir}/`)}${rest}`;
  return `"$(getent passwd ${user} | cut -d: -f6)"/${rest}`;
};

function copyScript(step: BuildStep, state: BuildState, at: number, archive: string): string {
  const [src = '', dest = '', owner = '', mode = ''] = step.args;
  if (src === '' || src.startsWith('/') || src.split('/').includes('..'))
    throw bad('COPY takes a path below the context', at);
  if (dest === '') throw bad('COPY needs a destination', at);
  const user = owner === '' ? state.user : owner;
  if (!userPattern.test(user)) throw bad(`${JSON.stringify(owner)} is no user`, at);
  if (mode !== '' && !/^0?[0-7]{3,4}$/.test(mode)) throw bad(`${JSON.stringify(mode)} is no mode`, at);
  return `
to=${absolute(dest, state)}
from=$(mktemp -d)
tar -xf ${quote(archive)} -C "$from"
cd "$from"
shopt -s nullglob dotglob globstar
IFS=
pattern=${quote(src)}
if [ -e "$pattern" ] || [ -L "$pattern" ]; then set -- "$pattern"; else set -- $pattern; fi
unset IFS
[ $# -gt 0 ] || { echo "nothing matches $pattern" >&2; exit 1; }
chown -R -h ${user}: "$from"
${mode === '' ? '' : `chmod -R ${mode} "$@"`}
if [ $# = 1 ] && [ -d "$1" ] && [ ! -L "$1" ]; then
  install -d -o ${user} -g "$(id -g ${user})" "$to"
  cp -a "$1/." "$to/"
elif [ $# = 1 ] && [ "$1" = "$pattern" ] && [ "\${to%/}" = "$to" ] && [ ! -d "$to" ]; then
  install -d -o ${user} -g "$(id -g ${user})" "$(dirname "$to")"
  cp -a "$1" "$to"
else
  install -d -o ${user} -g "$(id -g ${user})" "$to"
  cp -a "$@" "$to/"
fi
cd /
rm -rf "$from"`;
}

function envOf(args: readonly string[], at: number): Record<string, string> {
  if (args.length === 0 || args.length % 2 === 1) throw bad('ENV takes names and values', at);
  const pairs: [string, string][] = [];
  for (let word = 0; word < args.length; word += 2) {
    const name = args[word] ?? '';
    if (!variablePattern.test(name)) throw bad(`${JSON.stringify(name)} is no name of a variable`, at);
    pairs.push([name, args[word + 1] ?? '']);
  }
  return Object.fromEntries(pairs);
}

/** @param directory of the guest that holds the step's archive, named by its number. @throws GatewayError `invalid_request` */
export function scriptStep(step: BuildStep, state: BuildState, at: number, directory: string): ScriptedStep {
  const { type, args } = step;
  const [first = ''] = args;
  const title = `${type} ${args.filter((word) => word !== '').join(' ')}`.slice(0, 200);
  const done = { title, files: null, state };
  switch (type) {
    case 'COPY':
      if (step.filesHash == null) throw bad('COPY needs "filesHash"', at);
      return {
        ...done,
        files: step.filesHash,
        script: copyScript(step, state, at, `${directory}/${at}.tar`),
      };
    case 'RUN': {
      const user = args[1] === undefined || args[1] === '' ? state.user : args[1];
      if (first === '' || !userPattern.test(user)) throw bad('RUN takes a command and a user', at);
      return { ...done, script: runAs(state, user, first) };
    }
    case 'ENV': {
      const env = { ...state.env, ...envOf(args, at) };
      return { ...done, state: { ...state, env }, script: 'true' };
    }
    case 'WORKDIR': {
      if (first === '') throw bad('WORKDIR takes a path', at);
      if (!first.startsWith('/')) throw bad('WORKDIR takes an absolute path', at);
      const script = `[ -d ${quote(first)} ] || install -d -o ${state.user} -g "$(id -g ${state.user})" ${quote(first)}`;
      return { ...done, state: { ...state, workdir: first }, script };
    }
    case 'USER': {
      if (!userPattern.test(first)) throw bad('USER takes the name of a user', at);
      return { ...done, state: { ...state, user: first }, script: `id ${first}` };
    }
  }
}

/** A build step takes what it started along when it ends, so that goes beside it: still below the limits of all processes. */
const leaveGroup = `group=/sys/fs/cgroup$(dirname "$(sed -n 's/^0:://p' /proc/self/cgroup)")/start-command
mkdir -p "$group"`;

/** Polls of a ready command, and seconds between them. */
const readyTries = 600;
const readyPauseS = 0.5;

/** Starts what shall run in every sandbox, and waits until it is ready; both are part of the snapshot then. */
export function startScript(state: BuildState, startCmd: string | null, readyCmd: string | null): string {
  const log = '/var/log/start-command.log';
  const start =
    startCmd === null
      ? ''
      : `touch ${log}\nchmod 666 ${log}\n${leaveGroup}\n(\necho $BASHPID > "$group/cgroup.procs"\n${runAs(state, state.user, `exec setsid bash -c ${quote(startCmd)} >>${log} 2>&1 </dev/null`)}\n) >/dev/null 2>&1 </dev/null &\n`;
  if (readyCmd === null) return `${start}sleep ${startCmd === null ? 0 : 2}`;
  return `${start}for try in $(seq ${readyTries}); do
  if ( ${runAs(state, state.user, readyCmd)} ); then exit 0; fi
  sleep ${readyPauseS}
done
echo "the ready command never succeeded; the last lines of the start command:" >&2
tail -n 50 ${log} >&2
exit 1`;
}
