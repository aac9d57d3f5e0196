/* Control groups (version 2): one for each process that the host starts, so that all its descendants can be found. */
#ifndef CGROUP_H
#define CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroups {
  /* The directory in which groups are made; -1 when there are none (an unprivileged test run). */
  int base_fd;
};

enum { CGROUP_NAME_MAX = 80 };

/* Uses an existing directory of a cgroup2 file system. */
bool cgroups_open(struct cgroups *cgroups, const char *directory);
/* Makes a group and returns its directory, or -1 with errno. */
int cgroup_make(const struct cgroups *cgroups, const char *name);
/* Kills every process in it. */
void cgroup_kill(int group_fd);
/* Whether the kernel ended a process of this group for want of memory. */
bool cgroup_has_oom_kill(int group_fd);
/* False while processes are in it. */
bool cgroup_remove(const struct cgroups *cgroups, const char *name);
/* Writes a control file below a directory. False with errno. */
bool cgroup_write(int directory_fd, const char *file, const char *value);

#endif
