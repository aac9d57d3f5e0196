#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cgroup_write(int directory_fd, const char *file, const char *value) {
  int fd = openat(directory_fd, file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool is_written = write(fd, value, strlen(value)) == (ssize_t)strlen(value);
  int error = errno;
  close(fd);
  errno = error;
  return is_written;
}

bool cgroups_open(struct cgroups *cgroups, const char *directory) {
  cgroups->base_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return cgroups->base_fd >= 0;
}

int cgroup_make(const struct cgroups *cgroups, const char *name) {
  if (mkdirat(cgroups->base_fd, name, 0755) < 0) return -1;
  int fd = openat(cgroups->base_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    int error = errno;
    unlinkat(cgroups->base_fd, name, AT_REMOVEDIR);
    errno = error;
    return -1;
  }
  /* Absent where the memory controller is (a test run): then there is nothing to kill together. */
  cgroup_write(fd, "memory.oom.group", "1");
  return fd;
}

void cgroup_kill(int group_fd) {
  if (group_fd >= 0) cgroup_write(group_fd, "cgroup.kill", "1");
}

bool cgroup_has_oom_kill(int group_fd) {
  char events[512];
  int fd = group_fd < 0 ? -1 : openat(group_fd, "memory.events", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t size = read(fd, events, sizeof events - 1);
  close(fd);
  if (size <= 0) return false;
  events[size] = 0;
  const char *found = strstr(events, "oom_kill ");
  return found && strtoul(found + 9, NULL, 10) > 0;
}

bool cgroup_remove(const struct cgroups *cgroups, const char *name) {
  return unlinkat(cgroups->base_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}
