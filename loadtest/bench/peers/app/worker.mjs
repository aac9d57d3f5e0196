// The same in a V8 isolate.
import { answer } from './hello.mjs';

export default {
  fetch: () => new Response(answer(), { headers: { 'content-type': 'application/json' } }),
};
