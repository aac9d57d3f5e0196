#define _GNU_SOURCE
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "identity.h"
#include "log.h"
#include "preamble.h"

void boot_fail(const char *format, ...) {
  char reason[256];
  va_list list;
  va_start(list, format);
  vsnprintf(reason, sizeof reason, format, list);
  va_end(list);
  agent_log("boot failed: %s", reason);
  sync();
  reboot(RB_POWER_OFF);
  /* Without ACPI the call returns: a halted PID 1 is all that is left then. */
  for (;;) pause();
}

static void mount_early(const char *type, const char *place) {
  mkdir(place, 0755);
  /* The kernel may have mounted devtmpfs itself. */
  if (mount(type, place, type, MS_NOSUID, NULL) < 0 && errno != EBUSY)
    boot_fail("mount %s: %s", place, strerror(errno));
}

static void open_console(void) {
  int console = open("/dev/console", O_WRONLY | O_NOCTTY), null = open("/dev/null", O_RDWR);
  if (null < 0 && console < 0) return;
  dup2(null >= 0 ? null : console, 0);
  dup2(console >= 0 ? console : null, 1);
  dup2(console >= 0 ? console : null, 2);
  if (console > 2) close(console);
  if (null > 2) close(null);
}

/* The value of a word of the kernel's command line, up to its end; NULL when it is not there. */
static const char *command_line_value(const char *name) {
  static char line[4096];
  if (!line[0]) {
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    line[size > 0 ? size : 0] = 0;
  }
  const char *found = strstr(line, name);
  return found ? found + strlen(name) : NULL;
}

/* Sets the wall clock back while a template is built: see `buildClockLagSeconds` of the edge for why. */
static void lag_clock(void) {
  const char *found = command_line_value("snapgate.clock-lag=");
  if (!found) return;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= strtol(found, NULL, 10);
  if (clock_settime(CLOCK_REALTIME, &now) < 0) boot_fail("set the clock back: %s", strerror(errno));
}

static void read_token(char token[64]) {
  const char *found = command_line_value("snapgate.token=");
  if (!found || strlen(found) < TOKEN_DIGITS || !is_hex(found, TOKEN_DIGITS))
    boot_fail("the kernel command line has no snapgate.token of 64 hex digits");
  memcpy(token, found, TOKEN_DIGITS);
}

static void write_setting(const char *path, const char *value) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, value, strlen(value)) < 0) agent_log("%s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
}

/*
 * The token stands in the command line and the kernel's log. The mode of /proc/cmdline belongs to the file itself and so
 * holds in every mount of proc, also in a user's own namespace, where a file bound over this one would not be.
 */
static void hide_token(void) {
  if (chmod("/proc/cmdline", 0400) < 0) boot_fail("/proc/cmdline: %s", strerror(errno));
  write_setting("/proc/sys/kernel/dmesg_restrict", "1");
}

static void bring_up_loopback(void) {
  struct ifreq request = {.ifr_name = "lo"};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0) agent_log("lo: %s", strerror(errno));
  if (fd >= 0) close(fd);
}

static void protect_agent(void) {
  const struct rlimit files = {.rlim_cur = 65536, .rlim_max = 1048576};
  setrlimit(RLIMIT_NOFILE, &files);
  write_setting("/proc/self/oom_score_adj", "-1000");
}

void boot_guest(char token[64]) {
  mount_early("devtmpfs", "/dev");
  open_console();
  agent_log("booting");
  mount_early("proc", "/proc");
  mount_early("sysfs", "/sys");
  read_token(token);
  lag_clock();
  hide_token();
  boot_devices();
  boot_root();
  boot_groups();
  protect_agent();
  bring_up_loopback();
  boot_network();
  const char *failed = identity_prepare();
  if (failed) boot_fail("%s: %s", failed, strerror(errno));
  if (sethostname("snapgate", 8) < 0) agent_log("hostname: %s", strerror(errno));
}
