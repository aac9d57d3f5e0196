/** Everything that is no function call: the admin API under `/v1`, health, metrics and the OpenAPI document. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { errorCodes, GatewayError, headerNames } from '../../sdk/index.ts';
import * as fields from '../fields.ts';
import { credentialsOf } from '../keys/credential.ts';
import type { GatewayOptions } from '../options.ts';
import { requestIdOf } from '../request-id.ts';
import { isOpenedByToken, takesBytes } from '../sandboxes/access.ts';
import { sandboxRoutes } from '../sandboxes/routes.ts';
import { allowedMethods } from './allowed-methods.ts';
import { crossOrigin } from './cross-origin.ts';
import { fleetRoutes } from './fleet.ts';
import { healthRoutes } from './health.ts';
import { limitJson } from './json-limit.ts';
import { keyRoutes } from './keys.ts';
import { limitRoutes } from './limits.ts';
import { problemResponse, toApiError } from './problems.ts';
import { publishRoutes } from './publish.ts';
import { type ApiDeps, type ApiEnv, newRouter } from './router.ts';
import { templateRoutes } from './templates.ts';

/** JSON bodies; archives have a limit of their own. */
const jsonBytes = 256 * 1024;

/** Requests that count against a key's limits, as calls of functions do. */
const takesMachine = (method: string, path: string): boolean =>
  method === 'POST' && /^\/v1\/sandboxes(\/[^/]+\/fork)?$/.test(path);

/** Owns nothing; every handler's work ends with its request. */
export function createApi(deps: ApiDeps, options: GatewayOptions): OpenAPIHono<ApiEnv> {
  const app = newRouter();
  app.use(async (context, next) => {
    const requestId = requestIdOf(context.req.header('x-request-id'));
    context.set('requestId', requestId);
    await next();
    context.res.headers.set(headerNames.requestId, requestId);
  });
  app.use('/v1/*', crossOrigin());
  app.use('/v1/*', async (context, next) => {
    const credentials = credentialsOf({
      authorization: context.req.header('authorization'),
      'x-api-key': context.req.header('x-api-key'),
    });
    const identity = credentials.map(({ key }) => deps.keys.verify(key)).find((found) => found !== null);
    if (identity === undefined && !(await isOpenedByToken(deps.sandboxes, context.req.path, credentials))) {
      const message = credentials.length > 0 ? 'the API key is not valid' : 'an API key is needed';
      throw new GatewayError('unauthenticated', message);
    }
    if (identity !== undefined && takesMachine(context.req.method, context.req.path))
      deps.keys.spend(identity);
    await next();
  });
  const limit = limitJson(jsonBytes);
  app.use('/v1/*', (context, next) =>
    context.req.path.endsWith('/versions') || takesBytes(context.req.method, context.req.path)
      ? next()
      : limit(context, next),
  );
  app.route('/', healthRoutes(deps));
  app.route('/', templateRoutes(deps, options));
  app.route('/', publishRoutes(deps, options));
  app.route('/', fleetRoutes(deps));
  app.route('/', keyRoutes(deps.keys));
  app.route('/', limitRoutes(deps));
  app.route('/', sandboxRoutes(deps));
  app.openAPIRegistry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer' });
  app.openAPIRegistry.registerComponent('securitySchemes', 'apiKey', {
    type: 'apiKey',
    in: 'header',
    name: 'X-API-KEY',
  });
  app.doc31('/openapi.json', {
    openapi: '3.1.0',
    info: {
      title: 'Snapgate',
      version: '1',
      description: 'Functions are called at `/fn/{template}[@{version or alias}]/{path}` with any method.',
    },
    security: [{ bearer: [] }, { apiKey: [] }],
  });
  app.notFound((context) => {
    const { path, method } = context.req;
    const allow = allowedMethods(app.routes, path);
    if (allow === '') {
      return problemResponse(context, new GatewayError('route_not_found', `there is nothing at ${path}`));
    }
    return problemResponse(
      context,
      new GatewayError('method_not_allowed', `${path} does not take ${method}`),
      allow,
    );
  });
  app.onError((thrown, context) => {
    const error = toApiError(thrown);
    const line = { ...fields.invocationId(context.get('requestId')), ...fields.failure(error) };
    if (errorCodes[error.code].blame === 'system') deps.log.error(line, 'api request failed');
    return problemResponse(context, error);
  });
  return app;
}
