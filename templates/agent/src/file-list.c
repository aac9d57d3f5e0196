/* GET /v1/files/list: one stat row per line, directories before what is in them, made as the reader takes them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "query.h"

enum { LIST_DEPTH = 64, LIST_ROWS = 100000, ROWS_PER_PULL = 64 };

struct listing {
  struct file_actor actor;
  struct file_names names;
  int64_t depth;
  size_t rows;
  char path[PATH_MAX];
  /* Open directories from the top down, and the length of `path` for each. */
  DIR *open[LIST_DEPTH];
  size_t lengths[LIST_DEPTH];
  size_t level;
  struct text ready;
  size_t ready_at;
};

static bool enter(struct listing *listing, int parent_fd, const char *name) {
  int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *directory = fd < 0 ? NULL : fdopendir(fd);
  if (!directory) {
    if (fd >= 0) close(fd);
    return false;
  }
  listing->open[listing->level] = directory;
  listing->lengths[listing->level++] = strlen(listing->path);
  return true;
}

/* One entry of the innermost directory; a directory that can't be read is listed, but not entered. */
static void step(struct listing *listing) {
  DIR *directory = listing->open[listing->level - 1];
  size_t length = listing->lengths[listing->level - 1];
  struct dirent *entry = readdir(directory);
  if (!entry) {
    closedir(directory);
    listing->level--;
    return;
  }
  struct stat found;
  const char *name = entry->d_name;
  if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return;
  if (length + 1 + strlen(name) >= sizeof listing->path) return;
  if (fstatat(dirfd(directory), name, &found, AT_SYMLINK_NOFOLLOW) < 0) return;
  size_t at = length;
  if (length > 1) listing->path[at++] = '/';
  strcpy(listing->path + at, name);
  file_row(&listing->ready, &listing->names, listing->path, dirfd(directory), name, &found);
  text_add(&listing->ready, "\n", 1);
  listing->rows++;
  if (S_ISDIR(found.st_mode) && (int64_t)listing->level < listing->depth) enter(listing, dirfd(directory), name);
}

static bool is_over(const struct listing *listing) { return listing->level == 0 || listing->rows >= LIST_ROWS; }

static ssize_t pull(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  struct listing *listing = request->state;
  if (listing->ready_at == listing->ready.length && !is_over(listing)) {
    listing->ready.length = listing->ready_at = 0;
    if (!file_actor_enter(request, &listing->actor)) return -1;
    for (int i = 0; (i < ROWS_PER_PULL || listing->ready.length == 0) && !is_over(listing); i++) step(listing);
    file_actor_leave(&listing->actor);
    if (listing->ready.failed) return -1;
  }
  size_t left = listing->ready.length - listing->ready_at, size = left < length ? left : length;
  if (size > 0) memcpy(buffer, listing->ready.data + listing->ready_at, size);
  listing->ready_at += size;
  *is_last = size == left && is_over(listing);
  return (ssize_t)size;
}

static void on_close(struct request *request) {
  struct listing *listing = request->state;
  while (listing->level > 0) closedir(listing->open[--listing->level]);
  file_names_free(&listing->names);
  text_reset(&listing->ready);
  free(listing);
}

void file_route_list(struct request *request) {
  struct listing *listing = calloc(1, sizeof *listing);
  if (!listing) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for a listing");
    return;
  }
  request->state = listing;
  request->on_close = on_close;
  listing->depth = 1;
  if (!file_query(request, listing->path, &listing->actor)) return;
  if (query_integer(request->query, "depth", 1, LIST_DEPTH, &listing->depth) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "depth must be 1 to %d", LIST_DEPTH);
    return;
  }
  if (!file_attributes_wanted(request, &listing->names.has_attributes)) return;
  size_t length = strlen(listing->path);
  while (length > 1 && listing->path[length - 1] == '/') listing->path[--length] = 0;
  if (!file_actor_enter(request, &listing->actor)) return;
  char real[PATH_MAX];
  bool is_open = realpath(listing->path, real) && enter(listing, AT_FDCWD, real);
  int error = errno;
  file_actor_leave(&listing->actor);
  if (!is_open) {
    request_fail_errno(request, error, "open");
    return;
  }
  file_names_load(&listing->names);
  request_stream(request, "application/x-ndjson", NULL, 0, pull);
}
