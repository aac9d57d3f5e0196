/* Making directories, moving, deleting. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "query.h"

enum { DELETE_DEPTH = 256 };

/* Deletes what is in a directory without following links out of it. The descriptor is used up. */
static bool empty_directory(int fd, int depth) {
  DIR *directory = depth > DELETE_DEPTH ? NULL : fdopendir(fd);
  if (!directory) {
    close(fd);
    if (depth > DELETE_DEPTH) errno = ELOOP;
    return false;
  }
  int error = 0;
  for (struct dirent *entry; !error && (entry = readdir(directory));) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (unlinkat(dirfd(directory), name, 0) == 0 || errno == ENOENT) continue;
    error = errno;
    int child = openat(dirfd(directory), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (child < 0) continue;
    bool is_gone = empty_directory(child, depth + 1) && unlinkat(dirfd(directory), name, AT_REMOVEDIR) == 0;
    error = is_gone ? 0 : errno;
  }
  closedir(directory);
  errno = error;
  return error == 0;
}

static bool delete_tree(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return fd >= 0 && empty_directory(fd, 0) && rmdir(path) == 0;
}

static bool delete_path(const char *path, bool is_recursive) {
  if (unlink(path) == 0) return true;
  if (errno != EISDIR) return false;
  return is_recursive ? delete_tree(path) : rmdir(path) == 0;
}

void file_route_delete(struct request *request) {
  char path[PATH_MAX];
  struct file_actor actor;
  int64_t is_recursive = 0;
  if (!file_query(request, path, &actor)) return;
  if (query_integer(request->query, "recursive", 0, 1, &is_recursive) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "recursive must be 0 or 1");
    return;
  }
  if (!file_actor_enter(request, &actor)) return;
  bool is_gone = delete_path(path, is_recursive == 1);
  int error = errno;
  file_actor_leave(&actor);
  if (is_gone) request_no_content(request);
  else request_fail_errno(request, error, "delete");
}

/* What the two JSON routes have in common. */
struct change {
  struct json_document document;
  const struct json *root;
  struct file_actor actor;
};

static bool read_path(struct request *request, const struct change *change, const char *key, char path[PATH_MAX]) {
  const struct json *value = json_get(change->root, key);
  if (value && value->kind == JSON_STRING && value->string[0] == '/' && strlen(value->string) < PATH_MAX) {
    strcpy(path, value->string);
    return true;
  }
  request_fail(request, FAIL_INVALID_REQUEST, "%s must be an absolute path", key);
  return false;
}

static bool read_change(struct request *request, const char *const *known, struct change *change) {
  *change = (struct change){0};
  change->root = json_parse(&change->document, request->body.data, request->body.length);
  const char *problem = NULL;
  if (!change->root) problem = change->document.problem;
  else if (change->root->kind != JSON_OBJECT || json_unknown_key(change->root, known)) problem = "unknown key";
  const struct json *user = problem ? NULL : json_get(change->root, "user");
  if (user && user->kind != JSON_STRING) problem = "user must be a string";
  if (problem) {
    request_fail(request, FAIL_INVALID_REQUEST, "%s", problem);
    return false;
  }
  return !user || file_actor_find(request, user->string, &change->actor);
}

static void finish(struct request *request, bool is_done, int error, const char *what) {
  if (is_done) request_no_content(request);
  else request_fail_errno(request, error, what);
}

static void make_directory(struct request *request, struct change *change) {
  char path[PATH_MAX];
  int64_t mode = 0755;
  const struct json *wanted = json_get(change->root, "mode");
  if (!read_path(request, change, "path", path)) return;
  if (wanted && !json_integer(wanted, 0, 07777, &mode)) {
    request_fail(request, FAIL_INVALID_REQUEST, "mode must be 0 to 4095");
    return;
  }
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') path[--length] = 0;
  if (!file_actor_enter(request, &change->actor)) return;
  bool is_done = file_make_parents(path, NULL) && mkdir(path, 0700) == 0 && chmod(path, (mode_t)mode) == 0;
  int error = errno;
  file_actor_leave(&change->actor);
  finish(request, is_done, error, "mkdir");
}

void file_route_mkdir(struct request *request) {
  static const char *const known[] = {"path", "mode", "user", NULL};
  struct change change;
  if (read_change(request, known, &change)) make_directory(request, &change);
  json_free(&change.document);
}

static void move_path(struct request *request, struct change *change) {
  char from[PATH_MAX], to[PATH_MAX];
  if (!read_path(request, change, "from", from) || !read_path(request, change, "to", to)) return;
  if (!file_actor_enter(request, &change->actor)) return;
  bool is_done = file_make_parents(to, NULL) && rename(from, to) == 0;
  int error = errno;
  file_actor_leave(&change->actor);
  finish(request, is_done, error, "move");
}

void file_route_move(struct request *request) {
  static const char *const known[] = {"from", "to", "user", NULL};
  struct change change;
  if (read_change(request, known, &change)) move_path(request, &change);
  json_free(&change.document);
}
