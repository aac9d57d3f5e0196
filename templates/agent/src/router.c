#include "router.h"

#include <string.h>

#include "files.h"
#include "identity.h"
#include "metrics.h"
#include "process-routes.h"
#include "query.h"
#include "tunnel.h"

/* `{}` stands for one segment, which becomes the next of `request->args`. */
static const struct route {
  enum method method;
  const char *pattern;
  /* Runs when the headers are there, or with the whole body (at most REQUEST_JSON_MAX) when `wants_body`. */
  request_event_fn *run;
  bool wants_body;
} routes[] = {
  {METHOD_GET, "/v1/ping", identity_ping, false},
  {METHOD_POST, "/v1/resume", identity_resume, true},
  {METHOD_POST, "/v1/processes", process_route_start, true},
  {METHOD_GET, "/v1/processes", process_route_list, false},
  {METHOD_GET, "/v1/processes/{}", process_route_status, false},
  {METHOD_DELETE, "/v1/processes/{}", process_route_delete, false},
  {METHOD_GET, "/v1/processes/{}/wait", process_route_wait, false},
  {METHOD_GET, "/v1/processes/{}/output/{}", process_route_output, false},
  {METHOD_PUT, "/v1/processes/{}/stdin", process_route_stdin, false},
  {METHOD_POST, "/v1/processes/{}/signal", process_route_signal, true},
  {METHOD_POST, "/v1/processes/{}/resize", process_route_resize, true},
  {METHOD_GET, "/v1/files", file_route_read, false},
  {METHOD_PUT, "/v1/files", file_route_write, false},
  {METHOD_DELETE, "/v1/files", file_route_delete, false},
  {METHOD_GET, "/v1/files/stat", file_route_stat, false},
  {METHOD_GET, "/v1/files/list", file_route_list, false},
  {METHOD_POST, "/v1/files/mkdir", file_route_mkdir, true},
  {METHOD_POST, "/v1/files/move", file_route_move, true},
  {METHOD_GET, "/v1/files/watch", file_route_watch, false},
  {METHOD_GET, "/v1/metrics", metrics_route, false},
  {METHOD_POST, "/v1/sync", identity_sync, false},
};

/* Where the captured segments begin is noted; they are cut and decoded only when the whole pattern fits. */
static bool fits(const char *pattern, char *path, char *captured[REQUEST_ARGS]) {
  size_t count = 0;
  while (*pattern) {
    if (pattern[0] == '{') {
      size_t length = strcspn(path, "/");
      if (length == 0 || count == REQUEST_ARGS) return false;
      captured[count++] = path;
      path += length;
      pattern += 2;
    } else if (*pattern++ != *path++) {
      return false;
    }
  }
  return *path == 0;
}

static bool cut(struct request *request, char *captured[REQUEST_ARGS]) {
  for (size_t i = 0; i < REQUEST_ARGS && captured[i]; i++) {
    size_t length = strcspn(captured[i], "/");
    captured[i][length] = 0;
  }
  for (size_t i = 0; i < REQUEST_ARGS && captured[i]; i++) {
    if (!percent_decode(captured[i])) return false;
    request->args[i] = captured[i];
  }
  return true;
}

static void collect(struct request *request, const uint8_t *bytes, size_t length) {
  request_consumed(request, length);
  if (request->is_answered) return;
  if (request->body.length + length > REQUEST_JSON_MAX) {
    request_fail(request, FAIL_TOO_LARGE, "the body is over %d bytes", REQUEST_JSON_MAX);
    return;
  }
  text_add(&request->body, bytes, length);
  if (request->body.failed) request_fail(request, FAIL_NO_MEMORY, "no memory for the body");
}

static void run_collected(struct request *request) {
  const struct route *route = request->state;
  request->state = NULL;
  if (!request->is_answered) route->run(request);
}

static const struct route *find(struct request *request, char *path, bool *is_path_known) {
  *is_path_known = false;
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
    char *captured[REQUEST_ARGS] = {NULL};
    if (!fits(routes[i].pattern, path, captured)) continue;
    *is_path_known = true;
    if (routes[i].method != request->method) continue;
    if (!cut(request, captured)) {
      request_fail(request, FAIL_INVALID_REQUEST, "the path is not percent-encoded");
      return NULL;
    }
    return &routes[i];
  }
  return NULL;
}

void router_begin(struct request *request) {
  if (request->method == METHOD_CONNECT) {
    tunnel_open(request);
    return;
  }
  if (!request->target) {
    request_fail(request, FAIL_INVALID_REQUEST, "there is no path");
    return;
  }
  char *query = strchr(request->target, '?');
  if (query) *query++ = 0;
  request->query = query;
  bool is_path_known;
  const struct route *route = find(request, request->target, &is_path_known);
  if (!route) {
    request_fail(request, is_path_known ? FAIL_METHOD : FAIL_NOT_FOUND, "there is no such route");
    return;
  }
  if (route->wants_body) {
    request->on_body = collect;
    request->on_body_end = run_collected;
    request->state = (void *)route;
  } else {
    route->run(request);
  }
}
