/* Stat rows, and GET /v1/files/stat. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

void file_names_load(struct file_names *names) {
  account_names_load(&names->users, "/etc/passwd");
  account_names_load(&names->groups, "/etc/group");
}

void file_names_free(struct file_names *names) {
  account_names_free(&names->users);
  account_names_free(&names->groups);
}

static const char *type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "symlink";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    default: return "device";
  }
}

static void add_name(struct text *text, const char *key, const struct account_names *names, unsigned id) {
  const char *name = account_name(names, id);
  text_addf(text, ",\"%s\":", key);
  if (name) text_add_json_string(text, name);
  else text_addf(text, "\"%u\"", id);
}

void file_row(struct text *text, const struct file_names *names, const char *path, int directory_fd, const char *name,
              const struct stat *found) {
  const char *last = strrchr(path, '/');
  text_addf(text, "{\"path\":");
  text_add_json_string(text, path);
  text_addf(text, ",\"name\":");
  text_add_json_string(text, last && last[1] ? last + 1 : path);
  text_addf(text, ",\"type\":\"%s\",\"size\":%lld,\"mode\":%u", type_of(found->st_mode), (long long)found->st_size,
            (unsigned)found->st_mode & 07777);
  text_addf(text, ",\"uid\":%u,\"gid\":%u", (unsigned)found->st_uid, (unsigned)found->st_gid);
  add_name(text, "user", &names->users, found->st_uid);
  add_name(text, "group", &names->groups, found->st_gid);
  text_addf(text, ",\"mtimeMs\":%lld", (long long)found->st_mtim.tv_sec * 1000 + found->st_mtim.tv_nsec / 1000000);
  char target[PATH_MAX];
  ssize_t size = S_ISLNK(found->st_mode) ? readlinkat(directory_fd, name, target, sizeof target) : -1;
  if (size >= 0) {
    text_addf(text, ",\"target\":");
    text_add_json(text, target, (size_t)size);
  }
  if (names->has_attributes) file_row_attributes(text, path);
  text_add(text, "}", 1);
}

void file_route_stat(struct request *request) {
  char path[PATH_MAX];
  struct file_actor actor;
  struct stat found;
  struct file_names names = {0};
  if (!file_query(request, path, &actor) || !file_attributes_wanted(request, &names.has_attributes) ||
      !file_actor_enter(request, &actor))
    return;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') path[--length] = 0;
  int result = lstat(path, &found), error = errno;
  struct text body = {0};
  if (result == 0) {
    file_names_load(&names);
    file_row(&body, &names, path, AT_FDCWD, path, &found);
    file_names_free(&names);
  }
  file_actor_leave(&actor);
  if (result == 0) request_json(request, 200, &body);
  else request_fail_errno(request, error, "stat");
}
