/** Makes the code of the protocol from its definitions: `node gateway/e2b/proto/generate.ts [DIRECTORY]`. */
import { spawn } from 'node:child_process';
import { delimiter, join } from 'node:path';

const here = import.meta.dirname;
const bin = join(here, '../../../node_modules/.bin');

/** What is generated, relative to the directory it goes to. */
export const generatedFiles = [
  'process/process_pb.js',
  'process/process_pb.d.ts',
  'filesystem/filesystem_pb.js',
  'filesystem/filesystem_pb.d.ts',
];

/** Runs the generator into `directory`. JavaScript with declarations, since generated TypeScript has enums, which no runtime erases. */
export async function generate(directory: string): Promise<void> {
  const template = {
    version: 'v2',
    plugins: [{ local: 'protoc-gen-es', out: directory, opt: ['target=js+dts', 'import_extension=js'] }],
  };
  const child = spawn(join(bin, 'buf'), ['generate', here, '--template', JSON.stringify(template)], {
    stdio: ['ignore', 'inherit', 'inherit'],
    // The plugin finds its interpreter and itself by PATH.
    env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` },
  });
  const code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
  if (code !== 0) throw new Error(`buf generate ended with ${code}`);
}

if (import.meta.main) await generate(process.argv[2] ?? join(here, 'gen'));
