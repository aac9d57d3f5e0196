/**
 * Main of the child process that {@link loadDefinition} starts: imports a `template.ts` and writes its default export as
 * JSON to file descriptor 3, where nothing the template prints can get in between.
 */
import { writeSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const [path = ''] = process.argv.slice(2);

// A template folder has no node_modules; `import { defineTemplate } from 'snapgate'` means this very program.
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'snapgate'
      ? { url: new URL('./parse.ts', import.meta.url).href, shortCircuit: true }
      : next(specifier, context),
});

const template: { default?: unknown } = await import(pathToFileURL(path).href);
if (template.default === undefined) throw new Error('the file has no default export');
const bytes = Buffer.from(JSON.stringify(template.default));
for (let offset = 0; offset < bytes.length; ) offset += writeSync(3, bytes, offset);
// A template that left a timer or a server open has said all it had to say.
process.exit(0);
