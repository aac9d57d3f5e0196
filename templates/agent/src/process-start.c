/* POST /v1/processes: from JSON to a forked child. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "json.h"
#include "process-routes.h"
#include "process.h"

enum { ARGS_MAX = 1024, ENV_MAX = 1024, ENV_DEFAULTS = 6 };
static const int64_t longest_timeout_ms = 30LL * 24 * 3600 * 1000;

struct plan {
  struct process_spec spec;
  struct json_document document;
  /* Strings of the form NAME=value which we made. */
  char *made[ENV_MAX + ENV_DEFAULTS];
  size_t made_count;
  char *argv[ARGS_MAX + 1];
  char *env[ENV_MAX + ENV_DEFAULTS + 1];
  const char *problem;
  enum failure failure;
};

static bool refuse(struct plan *plan, enum failure failure, const char *problem) {
  plan->failure = failure;
  plan->problem = problem;
  return false;
}

static bool is_plain(const char *word, size_t most) {
  size_t length = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
  return length > 0 && length <= most && word[length] == 0;
}

static bool read_argv(struct plan *plan, const struct json *argv) {
  size_t count = 0;
  if (!argv || argv->kind != JSON_ARRAY || !argv->children)
    return refuse(plan, FAIL_INVALID_REQUEST, "argv must be a non-empty array of strings");
  for (const struct json *item = argv->children; item; item = item->next) {
    if (item->kind != JSON_STRING || count == ARGS_MAX)
      return refuse(plan, FAIL_INVALID_REQUEST, "argv must be at most 1024 strings");
    plan->argv[count++] = (char *)item->string;
  }
  plan->spec.argv = plan->argv;
  return *plan->argv[0] ? true : refuse(plan, FAIL_INVALID_REQUEST, "argv[0] is empty");
}

static bool has_variable(const struct plan *plan, const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < plan->made_count; i++)
    if (strncmp(plan->made[i], name, length) == 0 && plan->made[i][length] == '=') return true;
  return false;
}

static bool set_variable(struct plan *plan, const char *name, const char *value) {
  char *pair;
  if (has_variable(plan, name)) return true;
  if (asprintf(&pair, "%s=%s", name, value) < 0) return refuse(plan, FAIL_NO_MEMORY, "no memory for env");
  plan->env[plan->made_count] = plan->made[plan->made_count] = pair;
  plan->made_count++;
  return true;
}

static bool read_env(struct plan *plan, const struct json *env) {
  const struct account *account = &plan->spec.account;
  if (env && env->kind != JSON_OBJECT) return refuse(plan, FAIL_INVALID_REQUEST, "env must be an object of strings");
  for (const struct json *item = env ? env->children : NULL; item; item = item->next) {
    if (item->kind != JSON_STRING || !*item->key || strchr(item->key, '=') || plan->made_count == ENV_MAX)
      return refuse(plan, FAIL_INVALID_REQUEST, "env must be at most 1024 strings with proper names");
    if (!set_variable(plan, item->key, item->string)) return false;
  }
  plan->spec.env = plan->env;
  return set_variable(plan, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") &&
         set_variable(plan, "HOME", account->home) && set_variable(plan, "USER", account->name) &&
         set_variable(plan, "LOGNAME", account->name) && set_variable(plan, "SHELL", account->shell) &&
         set_variable(plan, "LANG", "C.UTF-8");
}

static bool read_account(struct plan *plan, const struct agent *agent, const struct json *user) {
  struct account *account = &plan->spec.account;
  if (user && user->kind != JSON_STRING) return refuse(plan, FAIL_INVALID_REQUEST, "user must be a string");
  if (!account_find(user ? user->string : "root", account)) {
    if (user) return refuse(plan, FAIL_INVALID_REQUEST, "there is no such user");
    *account = (struct account){.name = "root", .home = "/", .shell = "/bin/sh", .group_count = 1};
  }
  if (user && agent->is_rootless && account->uid != geteuid())
    return refuse(plan, FAIL_PERMISSION_DENIED, "this agent may not switch users");
  return true;
}

static bool read_size(const struct json *pty, const char *name, uint16_t *out) {
  int64_t value;
  if (!json_integer(json_get(pty, name), 1, 10000, &value)) return false;
  *out = (uint16_t)value;
  return true;
}

static bool read_pty(struct plan *plan, const struct json *pty) {
  static const char *const known[] = {"cols", "rows", NULL};
  struct process_spec *spec = &plan->spec;
  if (!pty || pty->kind == JSON_NULL) return true;
  if (pty->kind != JSON_OBJECT || json_unknown_key(pty, known) || !read_size(pty, "cols", &spec->cols) ||
      !read_size(pty, "rows", &spec->rows))
    return refuse(plan, FAIL_INVALID_REQUEST, "pty must be {cols, rows}, each 1 to 10000");
  spec->has_pty = true;
  return true;
}

/* The home directory is a default, so it may be missing; a directory that was asked for may not. */
static bool read_cwd(struct plan *plan, const struct json *cwd) {
  struct stat found;
  if (cwd) {
    if (cwd->kind != JSON_STRING || cwd->string[0] != '/')
      return refuse(plan, FAIL_INVALID_REQUEST, "cwd must be an absolute path");
    plan->spec.cwd = cwd->string;
    return true;
  }
  const char *home = plan->spec.account.home;
  plan->spec.cwd = stat(home, &found) == 0 && S_ISDIR(found.st_mode) ? home : "/";
  return true;
}

static bool read_rest(struct plan *plan, const struct json *root) {
  const struct json *id = json_get(root, "id"), *has_stdin = json_get(root, "stdin"),
                    *timeout = json_get(root, "timeoutMs"), *note = json_get(root, "note");
  if (!id || id->kind != JSON_STRING || !is_plain(id->string, PROCESS_ID_MAX))
    return refuse(plan, FAIL_INVALID_REQUEST, "id must match [A-Za-z0-9_-]{1,64}");
  plan->spec.id = id->string;
  if (has_stdin && has_stdin->kind != JSON_TRUE && has_stdin->kind != JSON_FALSE)
    return refuse(plan, FAIL_INVALID_REQUEST, "stdin must be a boolean");
  plan->spec.has_stdin = has_stdin && has_stdin->kind == JSON_TRUE;
  if (note && (note->kind != JSON_STRING || !is_plain(note->string, NOTE_MAX)))
    return refuse(plan, FAIL_INVALID_REQUEST, "note must match [A-Za-z0-9_-]{1,4096}");
  if (note) plan->spec.note = note->string;
  if (timeout && !json_integer(timeout, 1, longest_timeout_ms, &plan->spec.timeout_ms))
    return refuse(plan, FAIL_INVALID_REQUEST, "timeoutMs must be a whole number from 1 to 30 days");
  return true;
}

static bool read_plan(struct plan *plan, struct request *request) {
  static const char *const known[] = {"id",    "argv", "env",       "cwd",  "user",
                                      "stdin", "pty",  "timeoutMs", "note", NULL};
  struct json *root = json_parse(&plan->document, request->body.data, request->body.length);
  if (!root) return refuse(plan, FAIL_INVALID_REQUEST, plan->document.problem);
  if (root->kind != JSON_OBJECT) return refuse(plan, FAIL_INVALID_REQUEST, "the body must be an object");
  if (json_unknown_key(root, known)) return refuse(plan, FAIL_INVALID_REQUEST, "the body has an unknown key");
  return read_rest(plan, root) && read_argv(plan, json_get(root, "argv")) &&
         read_account(plan, request->agent, json_get(root, "user")) && read_env(plan, json_get(root, "env")) &&
         read_cwd(plan, json_get(root, "cwd")) && read_pty(plan, json_get(root, "pty"));
}

static void on_close(struct request *request) {
  struct process *process = request->state;
  if (process) process->starter = NULL;
}

static void start(struct plan *plan, struct request *request) {
  struct process *process = process_record(request->agent, plan->spec.id, &plan->failure);
  if (!process) {
    plan->problem = plan->failure == FAIL_EXISTS ? "a process with this id is running" : "no room for a process";
    return;
  }
  const char *what = "note";
  int error = 0;
  if (plan->spec.note && !(process->note = strdup(plan->spec.note))) error = ENOMEM;
  if (!error) error = process_spawn(process, &plan->spec, &what);
  if (error) {
    process_forget(process);
    process_sweep(request->agent);
    request_fail_errno(request, error, what);
    return;
  }
  /* Answered once exec has worked or failed. */
  process->starter = request;
  request->state = process;
  request->on_close = on_close;
}

void process_route_start(struct request *request) {
  struct plan *plan = calloc(1, sizeof *plan);
  if (!plan) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for the request");
    return;
  }
  if (read_plan(plan, request)) start(plan, request);
  if (plan->problem) request_fail(request, plan->failure, "%s", plan->problem);
  for (size_t i = 0; i < plan->made_count; i++) free(plan->made[i]);
  json_free(&plan->document);
  free(plan);
}
