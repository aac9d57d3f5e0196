/** `Allow` of a path, from the routes there are: what tells a wrong method from a wrong path. */
interface Route {
  readonly method: string;
  readonly path: string;
}

/** Methods of the routes whose pattern matches `path`, joined for the header; empty when none does. */
export function allowedMethods(routes: readonly Route[], path: string): string {
  const methods = new Set<string>();
  for (const route of routes) {
    // Middleware is registered for all methods and answers none.
    if (route.method !== 'ALL' && matches(route.path, path)) methods.add(route.method);
  }
  if (methods.has('GET')) methods.add('HEAD');
  return [...methods].sort().join(', ');
}

function matches(pattern: string, path: string): boolean {
  const expected = pattern.split('/');
  const actual = path.split('/');
  return (
    expected.length === actual.length &&
    expected.every((part, index) => (part.startsWith(':') ? actual[index] !== '' : part === actual[index]))
  );
}
