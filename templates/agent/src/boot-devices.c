#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boot.h"
#include "log.h"
#include "loop.h"

/* Generous: an emulated machine on a busy host takes seconds where a real one takes milliseconds. */
enum { DEVICE_WAIT_MS = 30000 };

static void load(const char *name) {
  char path[300];
  snprintf(path, sizeof path, "/modules/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  /* A module for hardware that is not there (ENODEV) is no fault; what is really missing shows at the disks. */
  if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV))
    agent_log("module %s: %s", name, strerror(errno));
  if (fd >= 0) close(fd);
}

static void load_modules(void) {
  FILE *order = fopen("/modules.order", "re");
  if (!order) {
    agent_log("no /modules.order: no modules are loaded");
    return;
  }
  char line[256];
  while (fgets(line, sizeof line, order)) {
    line[strcspn(line, "\r\n")] = 0;
    if (line[0] && !strchr(line, '/')) load(line);
  }
  fclose(order);
}

static void wait_for(const char *device, const char *what) {
  struct stat found;
  uint64_t until = monotonic_ms() + DEVICE_WAIT_MS;
  while (stat(device, &found) < 0 || !S_ISBLK(found.st_mode)) {
    if (monotonic_ms() > until) boot_fail("%s (%s) did not appear", device, what);
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
  }
}

void boot_devices(void) {
  load_modules();
  wait_for("/dev/vda", "root file system");
  wait_for("/dev/vdb", "scratch disk");
}
