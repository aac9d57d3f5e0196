// Brings a bare Debian machine to where Node 24 can run this checkout: Debian packages, npm packages, C programs.
// Runs before `npm start` and `npm test` under whatever Node is there (20 or later), so it imports nothing from npm.
// Says what it does and how long it took; silent when there is nothing to do.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const rootPath = dirname(dirname(fileURLToPath(import.meta.url)));
const nodePath = join(rootPath, 'node_modules/.bin/node');
const nodeMajor = 24;
const nativeParts = ['templates/agent', 'edge/native', 'edge/network/native'];
const shownLines = { first: 12, last: 25 };
const outputBytes = 64 * 1024;

class BootstrapError extends Error {}

/** A program's output, shortened in the middle: npm says first what is wrong, compilers and apt say it last. */
function excerpt(text) {
  const lines = text.trimEnd().split('\n');
  const left = lines.length - shownLines.first - shownLines.last;
  if (left > 1) lines.splice(shownLines.first, left, `… ${left} lines …`);
  return lines.join('\n');
}

/** Runs a program to its end; on failure the error names it and shows what it said. */
async function run(file, argv, options = {}) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' };
  const child = spawn(file, argv, { cwd: rootPath, stdio: ['ignore', 'pipe', 'pipe'], env, ...options });
  let output = '';
  const take = (chunk) => {
    output = (output + chunk.toString('utf8')).slice(-outputBytes);
  };
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  const exit = await new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => resolve(code === 0 ? null : (signal ?? `exit code ${code}`)));
  });
  if (exit !== null) throw new BootstrapError(`${[file, ...argv].join(' ')}: ${exit}\n${excerpt(output)}`);
}

/** Shows a step while it runs and how long it took. */
async function step(title, work) {
  const startedAt = performance.now();
  process.stdout.write(`• ${title} …${process.stdout.isTTY ? '' : '\n'}`);
  await work();
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  process.stdout.write(`${process.stdout.isTTY ? '\r' : ''}✓ ${title} (${seconds} s)\n`);
}

function missingPackages() {
  const wanted = JSON.parse(readFileSync(join(rootPath, 'edge/doctor/packages.json'), 'utf8')).map(
    (entry) => entry.package,
  );
  const query = spawnSync(
    'dpkg-query',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg's own placeholders
    ['--show', '--showformat=${Package} ${db:Status-Abbrev}\n', ...wanted],
    {
      encoding: 'utf8',
    },
  );
  if (query.error !== undefined) {
    throw new BootstrapError(
      `This machine has no dpkg. Snapgate sets itself up on Debian and its relatives; elsewhere install these ` +
        `programs by hand: ${wanted.join(' ')}`,
    );
  }
  const installed = new Set();
  for (const line of query.stdout.split('\n')) {
    const [name, status] = line.split(' ');
    if (status?.startsWith('ii')) installed.add(name);
  }
  return wanted.filter((name) => !installed.has(name));
}

async function ensureDebianPackages() {
  const missing = missingPackages();
  if (missing.length === 0) return;
  const install = ['install', '--yes', '--no-install-recommends', ...missing];
  if (process.getuid() !== 0) {
    throw new BootstrapError(
      `Some Debian packages are missing, and only root can install them. Run this, then start again:\n\n` +
        `  sudo sh -c 'apt-get update && apt-get ${install.join(' ')}'\n`,
    );
  }
  await step('updating the list of Debian packages', () => run('apt-get', ['update', '--quiet']));
  await step(`installing Debian packages: ${missing.join(' ')}`, () =>
    run('apt-get', ['--quiet', '--option=Dpkg::Use-Pty=0', '--option=DPkg::Lock::Timeout=120', ...install]),
  );
}

/** Whether node_modules holds exactly what package-lock.json says, by npm's own record of what it installed. */
function areNpmPackagesCurrent() {
  const recordPath = join(rootPath, 'node_modules/.package-lock.json');
  if (!existsSync(recordPath)) return false;
  const wanted = JSON.parse(readFileSync(join(rootPath, 'package-lock.json'), 'utf8')).packages;
  const installed = JSON.parse(readFileSync(recordPath, 'utf8')).packages;
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === '') continue;
    const found = installed[path];
    // Optional packages are for other platforms when they are absent.
    if (found === undefined ? !entry.optional : found.version !== entry.version) return false;
    if (
      found?.integrity !== undefined &&
      entry.integrity !== undefined &&
      found.integrity !== entry.integrity
    ) {
      return false;
    }
  }
  return Object.keys(installed).every((path) => wanted[path] !== undefined);
}

function isNodeCurrent() {
  const answer = spawnSync(nodePath, ['--version'], { encoding: 'utf8' });
  return answer.status === 0 && answer.stdout.startsWith(`v${nodeMajor}.`);
}

async function ensureNpmPackages() {
  if (!areNpmPackagesCurrent()) {
    await step('installing npm packages', () =>
      run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']),
    );
  }
  if (isNodeCurrent()) return;
  // The package `node` fetches its binary from an install script, which npm may have been told not to run.
  await step(`fetching Node ${nodeMajor}`, async () => {
    const packagePath = join(rootPath, 'node_modules/node');
    await run(process.execPath, ['installArchSpecificPackage.js'], { cwd: packagePath });
    // npm makes no link to a binary that was not there when it linked.
    mkdirSync(dirname(nodePath), { recursive: true });
    rmSync(nodePath, { force: true });
    symlinkSync('../node/bin/node', nodePath);
  });
  if (!isNodeCurrent()) {
    throw new BootstrapError(
      `${nodePath} is not Node ${nodeMajor}. Remove node_modules and run \`npm ci\` to see what npm says.`,
    );
  }
}

async function ensureNativeParts() {
  for (const part of nativeParts) {
    const question = spawnSync('make', ['--question', '--silent', '-C', part], {
      cwd: rootPath,
      stdio: 'ignore',
    });
    if (question.status === 0) continue;
    await step(`compiling ${part}`, () => run('make', ['--silent', '-C', part]));
  }
}

try {
  await ensureDebianPackages();
  await ensureNpmPackages();
  await ensureNativeParts();
} catch (error) {
  if (!(error instanceof BootstrapError)) throw error;
  process.stderr.write(`\n✗ ${error.message}\n`);
  process.exitCode = 1;
}
