/* GET /v1/files: streams a regular file, or a part of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "files.h"
#include "query.h"

struct reader {
  int fd;
  off_t offset;
  int64_t left;
};

static ssize_t pull(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  struct reader *reader = request->state;
  if ((int64_t)length > reader->left) length = (size_t)reader->left;
  ssize_t size = pread(reader->fd, buffer, length, reader->offset);
  if (size < 0) return errno == EINTR ? 0 : -1;
  reader->offset += size;
  reader->left -= size;
  *is_last = size == 0 || reader->left == 0;
  return size;
}

static void on_close(struct request *request) {
  struct reader *reader = request->state;
  close(reader->fd);
  free(reader);
}

static int open_regular(const char *path, struct stat *found) {
  /* Not blocking: opening a FIFO must not stop the agent. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  if (fstat(fd, found) == 0 && S_ISREG(found->st_mode)) return fd;
  close(fd);
  errno = S_ISDIR(found->st_mode) ? EISDIR : EINVAL;
  return -1;
}

void file_route_read(struct request *request) {
  char path[PATH_MAX];
  struct file_actor actor;
  struct stat found;
  int64_t offset = 0, length = INT64_MAX;
  if (!file_query(request, path, &actor)) return;
  if (query_integer(request->query, "offset", 0, INT64_MAX, &offset) == QUERY_MALFORMED ||
      query_integer(request->query, "length", 0, INT64_MAX, &length) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "offset and length must be whole numbers");
    return;
  }
  if (!file_actor_enter(request, &actor)) return;
  int fd = open_regular(path, &found), error = errno;
  file_actor_leave(&actor);
  struct reader *reader = fd < 0 ? NULL : malloc(sizeof *reader);
  if (!reader) {
    if (fd >= 0) close(fd);
    request_fail_errno(request, fd < 0 ? error : ENOMEM, "open");
    return;
  }
  *reader = (struct reader){.fd = fd, .offset = offset, .left = length};
  request->state = reader;
  request->on_close = on_close;
  request_stream(request, "application/octet-stream", "x-agent-size", (uint64_t)found.st_size, pull);
}
