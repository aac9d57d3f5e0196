/*
 * snapgate agent. As PID 1 it is the guest's init; with `--socket PATH --token HEX` it serves the same protocol on a
 * unix socket of the host, without boot duties, for tests.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "boot.h"
#include "log.h"

enum { PORT_WAIT_MS = 30000 };

/* Large (the session's buffers are in it), and there is one: it does not belong on the stack. */
static struct agent agent;

static void serve_guest(void) {
  char token[TOKEN_DIGITS];
  boot_guest(token);
  agent.is_guest = true;
  if (!agent_open(&agent, token)) boot_fail("the agent could not start");
  if (!cgroups_open(&agent.cgroups, BOOT_PROCESS_GROUP)) boot_fail("%s: %s", BOOT_PROCESS_GROUP, strerror(errno));
  uint64_t until = monotonic_ms() + PORT_WAIT_MS;
  /* The port's name arrives in a message of its own after the device. */
  while (!link_open_port(&agent.link, &agent.loop, "snapgate.agent")) {
    if (monotonic_ms() > until) boot_fail("the port snapgate.agent did not appear: %s", strerror(errno));
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
  }
  explicit_bzero(token, sizeof token);
  agent_log("ready");
  agent_serve(&agent);
  boot_fail("the agent stopped");
}

struct arguments {
  const char *socket;
  const char *token;
  const char *groups;
  bool is_rootless;
};

static bool parse(int count, char **values, struct arguments *arguments) {
  for (int i = 1; i < count; i++) {
    const char **to = strcmp(values[i], "--socket") == 0   ? &arguments->socket
                      : strcmp(values[i], "--token") == 0  ? &arguments->token
                      : strcmp(values[i], "--groups") == 0 ? &arguments->groups
                                                           : NULL;
    if (strcmp(values[i], "--root-less") == 0) arguments->is_rootless = true;
    else if (to && i + 1 < count) *to = values[++i];
    else return false;
  }
  return arguments->socket && arguments->token && strlen(arguments->token) == TOKEN_DIGITS &&
         is_hex(arguments->token, TOKEN_DIGITS);
}

static int serve_socket(const struct arguments *arguments) {
  agent.is_rootless = arguments->is_rootless || geteuid() != 0;
  agent.cgroups.base_fd = -1;
  if (arguments->groups) {
    if ((mkdir(arguments->groups, 0755) < 0 && errno != EEXIST) || !cgroups_open(&agent.cgroups, arguments->groups)) {
      agent_log("%s: %s", arguments->groups, strerror(errno));
      return 1;
    }
  }
  if (!agent_open(&agent, arguments->token)) return 1;
  if (!link_listen(&agent.link, &agent.loop, arguments->socket)) {
    agent_log("%s: %s", arguments->socket, strerror(errno));
    return 1;
  }
  agent_log("ready");
  agent_serve(&agent);
  agent_close(&agent);
  if (agent.cgroups.base_fd >= 0) close(agent.cgroups.base_fd);
  if (arguments->groups && rmdir(arguments->groups) < 0) agent_log("%s: %s", arguments->groups, strerror(errno));
  return 0;
}

int main(int count, char **values) {
  if (getpid() == 1) serve_guest();
  struct arguments arguments = {0};
  if (parse(count, values, &arguments)) return serve_socket(&arguments);
  fprintf(stderr, "usage: agent --socket PATH --token HEX [--groups DIRECTORY] [--root-less]\n"
                  "  PATH       unix socket to serve on\n"
                  "  HEX        64 lower-case hex digits which the host must know\n"
                  "  DIRECTORY  made below a cgroup2 file system, one group for each process; removed at the end\n");
  return 2;
}
