/* PUT /v1/files: written beside its place and renamed, so that a broken upload changes nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent.h"
#include "files.h"
#include "query.h"

struct upload {
  struct file_actor actor;
  int fd;
  mode_t mode;
  bool owns_parents;
  struct file_attributes attributes;
  char path[PATH_MAX];
  /* The file beside it; empty once it is renamed or removed. */
  char temporary[PATH_MAX + 32];
};

static bool name_temporary(struct upload *upload) {
  unsigned char noise[8];
  if (getrandom(noise, sizeof noise, 0) != sizeof noise) return false;
  size_t parent = (size_t)(strrchr(upload->path, '/') - upload->path) + 1;
  memcpy(upload->temporary, upload->path, parent);
  char *to = upload->temporary + parent;
  to += sprintf(to, ".snapgate-");
  for (size_t i = 0; i < sizeof noise; i++) to += sprintf(to, "%02x", noise[i]);
  return true;
}

/* Follows a symbolic link to the file that is meant; a dangling one is replaced. */
static bool settle_path(struct upload *upload, bool has_mode) {
  struct stat found;
  char real[PATH_MAX];
  if (lstat(upload->path, &found) < 0) return errno == ENOENT || errno == ENOTDIR;
  if (S_ISLNK(found.st_mode) && realpath(upload->path, real) && lstat(real, &found) == 0) strcpy(upload->path, real);
  if (S_ISLNK(found.st_mode)) return true;
  if (!S_ISREG(found.st_mode)) {
    errno = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
    return false;
  }
  if (!has_mode) upload->mode = found.st_mode & 07777;
  return true;
}

static bool create(struct upload *upload, bool has_mode) {
  if (!settle_path(upload, has_mode) || !file_make_parents(upload->path, upload->owns_parents ? &upload->actor : NULL) ||
      !name_temporary(upload))
    return false;
  upload->fd = open(upload->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (upload->fd < 0) upload->temporary[0] = 0;
  return upload->fd >= 0;
}

static void discard(struct upload *upload) {
  if (upload->fd >= 0) close(upload->fd);
  upload->fd = -1;
  if (upload->temporary[0]) unlink(upload->temporary);
  upload->temporary[0] = 0;
}

static void on_body(struct request *request, const uint8_t *bytes, size_t length) {
  struct upload *upload = request->state;
  request_consumed(request, length);
  while (length > 0 && upload->fd >= 0) {
    ssize_t size = write(upload->fd, bytes, length);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      int error = errno;
      discard(upload);
      request_fail_errno(request, error, "write");
      return;
    }
    bytes += size;
    length -= (size_t)size;
  }
}

static bool put_in_place(struct upload *upload) {
  if (!file_attributes_set(&upload->attributes, upload->fd) || fchmod(upload->fd, upload->mode) < 0 ||
      rename(upload->temporary, upload->path) < 0)
    return false;
  upload->temporary[0] = 0;
  return true;
}

static void on_body_end(struct request *request) {
  struct upload *upload = request->state;
  if (upload->fd < 0 || !file_actor_enter(request, &upload->actor)) return;
  bool is_done = put_in_place(upload);
  int error = errno;
  file_actor_leave(&upload->actor);
  discard(upload);
  if (is_done) request_no_content(request);
  else request_fail_errno(request, error, "rename");
}

static void on_close(struct request *request) {
  struct upload *upload = request->state;
  discard(upload);
  file_attributes_free(&upload->attributes);
  free(upload);
}

void file_route_write(struct request *request) {
  struct upload *upload = calloc(1, sizeof *upload);
  if (!upload) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for an upload");
    return;
  }
  upload->fd = -1;
  request->state = upload;
  request->on_close = on_close;
  request->on_body = on_body;
  request->on_body_end = on_body_end;
  int64_t mode = 0644;
  if (!file_query(request, upload->path, &upload->actor) || !file_attributes_read(request, &upload->attributes)) return;
  enum query_result has_mode = query_integer(request->query, "mode", 0, 07777, &mode);
  if (has_mode == QUERY_MALFORMED || upload->path[strlen(upload->path) - 1] == '/') {
    request_fail(request, FAIL_INVALID_REQUEST, "mode must be 0 to 4095, and path must name a file");
    return;
  }
  upload->mode = (mode_t)mode;
  int64_t owns_parents = 0;
  if (query_integer(request->query, "own-parents", 0, 1, &owns_parents) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "own-parents must be 0 or 1");
    return;
  }
  upload->owns_parents = owns_parents == 1 && upload->actor.is_named && !request->agent->is_rootless;
  if (!file_actor_enter(request, &upload->actor)) return;
  bool is_open = create(upload, has_mode == QUERY_FOUND);
  int error = errno;
  file_actor_leave(&upload->actor);
  if (!is_open) request_fail_errno(request, error, "create");
}
