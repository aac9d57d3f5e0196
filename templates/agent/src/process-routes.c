/* Everything below /v1/processes except the start. */
#include "process-routes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "agent.h"
#include "json.h"
#include "process.h"
#include "query.h"

static struct process *find(struct request *request) {
  struct process *process = process_find(&request->agent->processes, request->args[0]);
  if (!process) request_fail(request, FAIL_NOT_FOUND, "there is no such process");
  return process;
}

void process_route_list(struct request *request) {
  struct text body = {0};
  text_add(&body, "[", 1);
  for (struct process *process = request->agent->processes.first; process; process = process->next) {
    if (process->is_forgotten) continue;
    if (body.length > 1) text_add(&body, ",", 1);
    process_status(&body, process);
  }
  text_add(&body, "]", 1);
  request_json(request, 200, &body);
}

static void answer_status(struct request *request, const struct process *process) {
  struct text body = {0};
  process_status(&body, process);
  request_json(request, 200, &body);
}

void process_route_status(struct request *request) {
  struct process *process = find(request);
  if (process) answer_status(request, process);
}

void process_route_delete(struct request *request) {
  struct process *process = find(request);
  if (!process) return;
  process_kill(process);
  process_forget(process);
  process_sweep(request->agent);
  request_no_content(request);
}

static void on_waiter_close(struct request *request) {
  struct waiter *waiter = request->state;
  if (waiter->process) {
    struct waiter **place = &waiter->process->waiters;
    while (*place != waiter) place = &(*place)->next;
    *place = waiter->next;
  }
  free(waiter);
}

void process_route_wait(struct request *request) {
  struct process *process = find(request);
  if (!process) return;
  if (process->state == PROCESS_EXITED) {
    answer_status(request, process);
    return;
  }
  struct waiter *waiter = calloc(1, sizeof *waiter);
  if (!waiter) {
    request_fail(request, FAIL_NO_MEMORY, "no memory to wait");
    return;
  }
  *waiter = (struct waiter){.request = request, .process = process, .next = process->waiters};
  process->waiters = waiter;
  request->state = waiter;
  request->on_close = on_waiter_close;
}

static struct output *find_output(struct process *process, const char *name) {
  if (strcmp(name, process->has_pty ? "pty" : "stdout") == 0) return &process->outputs[0];
  return strcmp(name, "stderr") == 0 && !process->has_pty ? &process->outputs[1] : NULL;
}

void process_route_output(struct request *request) {
  struct process *process = find(request);
  if (!process) return;
  struct output *output = find_output(process, request->args[1]);
  if (!output) {
    request_fail(request, FAIL_NOT_FOUND, "the process has no such stream");
    return;
  }
  int64_t offset = 0, is_following = 0;
  if (query_integer(request->query, "offset", -INT64_MAX, INT64_MAX, &offset) == QUERY_MALFORMED ||
      query_integer(request->query, "follow", 0, 1, &is_following) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "offset must be a whole number and follow 0 or 1");
    return;
  }
  output_follow(output, request, offset, is_following == 1);
}

void process_route_stdin(struct request *request) {
  struct process *process = find(request);
  if (!process) return;
  int64_t offset, is_closing = 0;
  if (query_integer(request->query, "offset", 0, INT64_MAX, &offset) != QUERY_FOUND ||
      query_integer(request->query, "close", 0, 1, &is_closing) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "offset must be a whole number and close 0 or 1");
    return;
  }
  stdin_write(process, request, (uint64_t)offset, is_closing == 1);
}

/* Reads `count` integers of a flat object which has exactly these keys. */
static bool read_integers(struct request *request, const char *const *names, size_t count, int64_t least, int64_t most,
                          int64_t *out) {
  struct json_document document;
  struct json *root = json_parse(&document, request->body.data, request->body.length);
  bool is_right = root && root->kind == JSON_OBJECT && !json_unknown_key(root, names);
  for (size_t i = 0; is_right && i < count; i++)
    is_right = json_integer(json_get(root, names[i]), least, most, &out[i]);
  json_free(&document);
  if (!is_right) request_fail(request, FAIL_INVALID_REQUEST, "the body is malformed");
  return is_right;
}

void process_route_signal(struct request *request) {
  static const char *const names[] = {"signal", NULL};
  int64_t number;
  struct process *process = find(request);
  if (!process || !read_integers(request, names, 1, 1, 64, &number)) return;
  if (process->state == PROCESS_EXITED && number != SIGKILL) {
    request_fail(request, FAIL_CONFLICT, "the process has exited");
    return;
  }
  if (number == SIGKILL) process_kill(process);
  else if (kill(-process->pid, (int)number) < 0 && kill(process->pid, (int)number) < 0) {
    request_fail_errno(request, errno, "kill");
    return;
  }
  request_no_content(request);
}

void process_route_resize(struct request *request) {
  static const char *const names[] = {"cols", "rows", NULL};
  int64_t sizes[2];
  struct process *process = find(request);
  if (!process || !read_integers(request, names, 2, 1, 10000, sizes)) return;
  if (!process->has_pty || process->outputs[0].fd < 0) {
    request_fail(request, FAIL_CONFLICT, "the process has no terminal");
    return;
  }
  struct winsize size = {.ws_col = (unsigned short)sizes[0], .ws_row = (unsigned short)sizes[1]};
  if (ioctl(process->outputs[0].fd, TIOCSWINSZ, &size) < 0) request_fail_errno(request, errno, "resize");
  else request_no_content(request);
}
