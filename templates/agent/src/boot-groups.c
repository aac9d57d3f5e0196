/* The agent in one group, everything it starts in another which can't take the machine's last memory or process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "boot.h"
#include "cgroup.h"
#include "log.h"

static const unsigned long long least_reserve = 16ULL << 20, most_reserve = 64ULL << 20;

static int open_group(const char *path) {
  if (mkdir(path, 0755) < 0 && errno != EEXIST) boot_fail("control group %s: %s", path, strerror(errno));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) boot_fail("control group %s: %s", path, strerror(errno));
  return fd;
}

static void set(int fd, const char *file, const char *value) {
  if (!cgroup_write(fd, file, value)) agent_log("control group: %s: %s", file, strerror(errno));
}

/* A sixteenth of memory stays out of the functions' reach, so that what kills them is their own limit. */
static void limit_memory(int fd) {
  struct sysinfo info;
  char limit[24];
  if (sysinfo(&info) < 0) return;
  unsigned long long total = (unsigned long long)info.totalram * info.mem_unit, reserve = total / 16;
  if (reserve < least_reserve) reserve = least_reserve;
  if (reserve > most_reserve) reserve = most_reserve;
  snprintf(limit, sizeof limit, "%llu", total - reserve);
  set(fd, "memory.max", limit);
}

/* Three quarters of what the kernel can hold: a fork bomb must leave the agent able to say so. */
static void limit_processes(int fd) {
  char text[24] = "";
  int file = open("/proc/sys/kernel/threads-max", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  long most = size > 0 ? strtol(text, NULL, 10) : 0;
  if (most <= 0) return;
  snprintf(text, sizeof text, "%ld", most / 4 * 3);
  set(fd, "pids.max", text);
}

void boot_groups(void) {
  int root = open_group("/sys/fs/cgroup"), agent = open_group("/sys/fs/cgroup/agent");
  set(agent, "cgroup.procs", "0");
  set(root, "cgroup.subtree_control", "+memory +pids");
  int processes = open_group(BOOT_PROCESS_GROUP);
  set(processes, "cgroup.subtree_control", "+memory +pids");
  set(agent, "memory.min", "8388608");
  limit_memory(processes);
  limit_processes(processes);
  close(root);
  close(agent);
  close(processes);
}
