/* GET /v1/files/watch: inotify as lines of JSON. Events wait in the kernel's queue until the reader takes them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent.h"
#include "files.h"
#include "query.h"

enum { WATCH_DIRECTORIES = 8192, WATCH_DEPTH = 64 };
static const uint32_t wanted =
  IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR;

struct watched {
  int descriptor;
  char *path;
};

struct watching {
  struct loop *loop;
  struct request *request;
  struct file_actor actor;
  struct watch watch;
  bool is_recursive;
  bool is_over;
  struct watched *directories;
  size_t count, capacity;
  struct text ready;
  size_t ready_at;
};

static void add_row(struct watching *watching, const char *type, const char *directory, const char *name) {
  text_addf(&watching->ready, "{\"type\":\"%s\",\"path\":", type);
  char path[PATH_MAX + NAME_MAX + 2];
  snprintf(path, sizeof path, "%s%s%s", strcmp(directory, "/") == 0 ? "" : directory, *name ? "/" : "", name);
  text_add_json_string(&watching->ready, *path ? path : "/");
  text_addf(&watching->ready, "}\n");
}

static bool remember(struct watching *watching, int descriptor, const char *path) {
  for (size_t i = 0; i < watching->count; i++)
    if (watching->directories[i].descriptor == descriptor) return true;
  if (watching->count == WATCH_DIRECTORIES) return false;
  if (watching->count == watching->capacity) {
    size_t capacity = watching->capacity ? watching->capacity * 2 : 16;
    struct watched *grown = realloc(watching->directories, capacity * sizeof *grown);
    if (!grown) return false;
    watching->directories = grown;
    watching->capacity = capacity;
  }
  char *copy = strdup(path);
  if (!copy) return false;
  watching->directories[watching->count++] = (struct watched){descriptor, copy};
  return true;
}

static void forget(struct watching *watching, size_t index) {
  free(watching->directories[index].path);
  watching->directories[index] = watching->directories[--watching->count];
}

/* Watches a directory and, when asked to, those in it. With `is_new`, what is already there is reported. */
static bool add_directory(struct watching *watching, const char *path, int depth, bool is_new) {
  int descriptor = inotify_add_watch(watching->watch.fd, path, wanted);
  if (descriptor < 0) return false;
  if (!remember(watching, descriptor, path)) {
    inotify_rm_watch(watching->watch.fd, descriptor);
    errno = ENOMEM;
    return false;
  }
  DIR *directory = watching->is_recursive && depth < WATCH_DEPTH ? opendir(path) : NULL;
  if (!directory) return true;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *name = entry->d_name;
    char child[PATH_MAX];
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (is_new) add_row(watching, "create", path, name);
    int size = snprintf(child, sizeof child, "%s/%s", strcmp(path, "/") == 0 ? "" : path, name);
    bool is_directory = entry->d_type == DT_DIR && size < (int)sizeof child;
    if (is_directory && !add_directory(watching, child, depth + 1, is_new) && errno != EACCES && errno != ENOENT)
      add_row(watching, "overflow", child, "");
  }
  closedir(directory);
  return true;
}

/* A directory was moved away: it is no longer below the path it was known by. */
static void drop_below(struct watching *watching, const char *directory, const char *name) {
  char path[PATH_MAX + NAME_MAX + 2];
  size_t length = (size_t)snprintf(path, sizeof path, "%s/%s", strcmp(directory, "/") == 0 ? "" : directory, name);
  for (size_t i = watching->count; i-- > 0;) {
    const char *known = watching->directories[i].path;
    if (strncmp(known, path, length) != 0 || (known[length] && known[length] != '/')) continue;
    inotify_rm_watch(watching->watch.fd, watching->directories[i].descriptor);
    forget(watching, i);
  }
}

static const char *type_of(uint32_t mask) {
  if (mask & (IN_CREATE | IN_MOVED_TO)) return "create";
  if (mask & IN_MODIFY) return "write";
  if (mask & IN_DELETE) return "remove";
  if (mask & IN_MOVED_FROM) return "rename";
  return mask & IN_ATTRIB ? "chmod" : NULL;
}

static void take_event(struct watching *watching, const struct inotify_event *event) {
  const char *name = event->len > 0 ? event->name : "";
  if (event->mask & IN_Q_OVERFLOW) {
    add_row(watching, "overflow", watching->count > 0 ? watching->directories[0].path : "/", "");
    return;
  }
  size_t index = 0;
  while (index < watching->count && watching->directories[index].descriptor != event->wd) index++;
  if (index == watching->count) return;
  if (event->mask & IN_IGNORED) {
    forget(watching, index);
    watching->is_over = watching->count == 0;
    return;
  }
  char directory[PATH_MAX];
  snprintf(directory, sizeof directory, "%s", watching->directories[index].path);
  const char *type = type_of(event->mask);
  if (type && *name) add_row(watching, type, directory, name);
  if (!(event->mask & IN_ISDIR) || !watching->is_recursive || !*name) return;
  if (event->mask & IN_MOVED_FROM) drop_below(watching, directory, name);
  char child[PATH_MAX];
  if ((event->mask & (IN_CREATE | IN_MOVED_TO)) &&
      snprintf(child, sizeof child, "%s/%s", strcmp(directory, "/") == 0 ? "" : directory, name) < (int)sizeof child)
    add_directory(watching, child, 0, true);
}

/* False when the kernel has no more events at the moment. */
static bool take_events(struct watching *watching) {
  char events[16 * 1024] __attribute__((aligned(__alignof__(struct inotify_event))));
  ssize_t size = read(watching->watch.fd, events, sizeof events);
  for (char *at = events; size > 0 && at < events + size;) {
    const struct inotify_event *event = (const struct inotify_event *)at;
    take_event(watching, event);
    at += sizeof *event + event->len;
  }
  return size > 0;
}

static ssize_t pull(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  struct watching *watching = request->state;
  if (watching->ready_at == watching->ready.length) {
    watching->ready.length = watching->ready_at = 0;
    if (!file_actor_enter(request, &watching->actor)) return -1;
    /* Until there is a row, or nothing: "not now" may only be said once the kernel's queue is empty. */
    while (watching->ready.length == 0 && !watching->is_over && take_events(watching)) continue;
    file_actor_leave(&watching->actor);
    if (watching->ready.failed) return -1;
  }
  size_t left = watching->ready.length - watching->ready_at, size = left < length ? left : length;
  if (size > 0) memcpy(buffer, watching->ready.data + watching->ready_at, size);
  watching->ready_at += size;
  *is_last = size == left && watching->is_over;
  return (ssize_t)size;
}

static void on_event(struct watch *watch, uint32_t events) {
  struct watching *watching = watch->owner;
  (void)events;
  request_wake(watching->request);
}

static void on_close(struct request *request) {
  struct watching *watching = request->state;
  int fd = watching->watch.fd;
  loop_remove(watching->loop, &watching->watch);
  if (fd >= 0) close(fd);
  while (watching->count > 0) forget(watching, watching->count - 1);
  free(watching->directories);
  text_reset(&watching->ready);
  free(watching);
}

static bool begin(struct watching *watching, const char *path) {
  int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return false;
  if (!loop_add(watching->loop, &watching->watch, fd, EPOLLIN | EPOLLET)) {
    close(fd);
    return false;
  }
  return add_directory(watching, path, 0, false);
}

void file_route_watch(struct request *request) {
  char path[PATH_MAX];
  struct file_actor actor;
  int64_t is_recursive = 0;
  if (!file_query(request, path, &actor)) return;
  if (query_integer(request->query, "recursive", 0, 1, &is_recursive) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "recursive must be 0 or 1");
    return;
  }
  struct watching *watching = calloc(1, sizeof *watching);
  if (!watching) {
    request_fail(request, FAIL_NO_MEMORY, "no memory to watch");
    return;
  }
  watching->loop = &request->agent->loop;
  watching->request = request;
  watching->actor = actor;
  watching->is_recursive = is_recursive == 1;
  watching->watch = (struct watch){.fd = -1, .fn = on_event, .owner = watching};
  request->state = watching;
  request->on_close = on_close;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') path[--length] = 0;
  if (!file_actor_enter(request, &actor)) return;
  bool is_begun = begin(watching, path);
  int error = errno;
  file_actor_leave(&actor);
  if (is_begun) request_stream(request, "application/x-ndjson", NULL, 0, pull);
  else request_fail_errno(request, error, "watch");
}
