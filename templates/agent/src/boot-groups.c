/* The agent in one group, everything it starts in another which can't take the machine's last memory or process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "cgroup.h"
#include "log.h"

/* What functions may not use: a thirty-second of memory, within these bounds. */
static const unsigned long long least_reserve = 8ULL << 20, most_reserve = 64ULL << 20;

static int open_group(const char *path) {
  if (mkdir(path, 0755) < 0 && errno != EEXIST) boot_fail("control group %s: %s", path, strerror(errno));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) boot_fail("control group %s: %s", path, strerror(errno));
  return fd;
}

static void set(int fd, const char *file, const char *value) {
  if (!cgroup_write(fd, file, value)) agent_log("control group: %s: %s", file, strerror(errno));
}

static unsigned long long available_memory(void) {
  unsigned long long kib = 0;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "re");
  if (!file) return 0;
  while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu", &kib) != 1) continue;
  fclose(file);
  return kib * 1024;
}

/*
 * Measured from what the kernel left at boot, not from the total: the limit must be met before the machine as a whole runs
 * out, or every process thrashes instead of one being killed.
 */
static void limit_memory(int fd) {
  char limit[24];
  unsigned long long available = available_memory(), reserve = available / 32;
  if (reserve < least_reserve) reserve = least_reserve;
  if (reserve > most_reserve) reserve = most_reserve;
  if (available <= 2 * reserve) return;
  snprintf(limit, sizeof limit, "%llu", available - reserve);
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
  set(root, "cgroup.subtree_control", "+cpu +memory +pids");
  int processes = open_group(BOOT_PROCESS_GROUP);
  set(processes, "cgroup.subtree_control", "+cpu +memory +pids");
  set(agent, "memory.min", "8388608");
  /* Processor time is shared between groups, not tasks: a fork bomb leaves the agent and its neighbours theirs. */
  set(agent, "cpu.weight", "10000");
  limit_memory(processes);
  limit_processes(processes);
  close(root);
  close(agent);
  close(processes);
}
