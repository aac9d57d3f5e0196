/** E2B's control API: keys, routes, and errors as `{code, message, error_code}`. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { errorCodes, GatewayError, headerNames } from '../../../sdk/index.ts';
import { limitJson } from '../../api/json-limit.ts';
import { problemResponse, toApiError } from '../../api/problems.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import * as fields from '../../fields.ts';
import { credentialsOf } from '../../keys/credential.ts';
import { requestIdOf } from '../../request-id.ts';
import { idempotent } from '../../sandboxes/idempotent.ts';
import { buildRoutes, isUploadPath } from '../builds/routes.ts';
import type { ControlDeps } from './deps.ts';
import { observabilityRoutes } from './observability.ts';
import { sandboxRoutes } from './sandboxes.ts';
import { snapshotRoutes } from './snapshots.ts';
import { templateRoutes } from './templates.ts';

/** Metadata and env are the largest there is. */
const bodyBytes = 8 * 1024 * 1024;

/** Routes that do something which a repetition would do twice. */
const keyed = ['/sandboxes', '/v2/sandboxes', '/sandboxes/:id/fork', '/sandboxes/:id/snapshots'];
/** Parts of E2B's API that are not served; each is refused by its own name instead of looking like a wrong address. */
const unsupported = ['/volumes', '/secrets'];

/** Owns nothing; every handler's work ends with its request. */
export function createControlApi(deps: ControlDeps): OpenAPIHono<ApiEnv> {
  const app = newRouter();
  app.use(async (context, next) => {
    const requestId = requestIdOf(context.req.header('x-request-id'));
    context.set('requestId', requestId);
    await next();
    context.res.headers.set(headerNames.requestId, requestId);
  });
  app.get('/health', (context) => context.json({ status: 'ok' }));
  app.use(async (context, next) => {
    const credentials = credentialsOf({
      authorization: context.req.header('authorization'),
      'x-api-key': context.req.header('x-api-key'),
    });
    // Such an address carries its own permission; clients send no key along.
    const isUpload = context.req.method === 'PUT' && isUploadPath(context.req.path);
    if (!isUpload && !credentials.some(({ key }) => deps.keys.verify(key) !== null)) {
      const message = credentials.length > 0 ? 'the API key is not valid' : 'an API key is needed';
      throw new GatewayError('unauthenticated', message);
    }
    await next();
  });
  const limit = limitJson(bodyBytes);
  app.use((context, next) =>
    context.req.method === 'PUT' && isUploadPath(context.req.path) ? next() : limit(context, next),
  );
  for (const path of keyed) app.use(path, idempotent(deps.idempotency));
  app.route('/', observabilityRoutes(deps));
  app.route('/', sandboxRoutes(deps));
  app.route('/', snapshotRoutes(deps));
  if (deps.builds !== undefined) app.route('/', buildRoutes(deps.builds, deps.tokenSecret));
  app.route('/', templateRoutes(deps));
  for (const path of unsupported) {
    const refuse = () => {
      throw new GatewayError('not_supported_yet', `${path} is not served here yet`, { field: path });
    };
    app.all(path, refuse);
    app.all(`${path}/*`, refuse);
  }
  app.notFound((context) => {
    const { method, path } = context.req;
    return problemResponse(context, new GatewayError('route_not_found', `there is no ${method} ${path}`));
  });
  app.onError((thrown, context) => {
    const error = toApiError(thrown);
    const line = { ...fields.invocationId(context.get('requestId')), ...fields.failure(error) };
    if (errorCodes[error.code].blame === 'system') deps.log.error(line, 'e2b request failed');
    return problemResponse(context, error);
  });
  return app;
}
