// Folder arrows of STYLE.md: everything not listed is an error.
const folders = ['gateway', 'edge', 'pool', 'templates', 'sdk', 'loadtest'];
const allowed = {
  gateway: ['edge', 'templates', 'sdk'],
  edge: ['pool', 'templates', 'sdk'],
  pool: ['sdk'],
  templates: ['sdk'],
  loadtest: ['sdk'],
  sdk: [],
};
/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    ...folders.map((from) => ({
      name: `${from}-arrows`,
      severity: 'error',
      from: { path: `^${from}/`, pathNot: { gateway: '^gateway/cli/', loadtest: '^loadtest/bench/' }[from] },
      to: { path: folders.filter((f) => f !== from && !allowed[from].includes(f)).map((f) => `^${f}/`) },
    })),
    {
      name: 'only-through-the-door',
      comment:
        'another folder is entered by its index.ts (the client and the commands of the edge have doors of their own, so that light programs stay light)',
      severity: 'error',
      from: {
        path: '^(gateway|edge|pool|templates|sdk|loadtest)/',
        pathNot: '(^loadtest/bench/|^gateway/testing/|^scripts/|[.](e2e|bench)[.]ts$|[.]e2e[.]test[.]ts$)',
      },
      to: {
        path: '^(gateway|edge|pool|templates|sdk|loadtest)/',
        pathNot: ['^$1/', '^[a-z]+/index[.]ts$', '^edge/client/index[.]ts$', '^edge/cli/index[.]ts$'],
      },
    },
    {
      name: 'no-circular',
      severity: 'error',
      from: {},
      to: { circular: true, dependencyTypesNot: ['type-only'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '(^|/)(node_modules|dist|build|examples)/' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default'] },
  },
};
