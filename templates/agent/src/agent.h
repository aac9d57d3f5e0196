/* The agent: one host link, one session, and what outlives sessions. */
#ifndef AGENT_H
#define AGENT_H

#include <stdbool.h>

#include "cgroup.h"
#include "link.h"
#include "loop.h"
#include "metrics.h"
#include "preamble.h"
#include "process.h"
#include "session.h"

#define AGENT_VERSION "0.1.0"
enum { AGENT_PROTOCOL = 2 };

struct agent {
  struct loop loop;
  struct link link;
  struct preamble preamble;
  struct timer hold;
  struct session session;
  struct process_table processes;
  struct cgroups cgroups;
  struct metrics metrics;
  struct watch signals;
  /* PID 1 of a guest. Otherwise nothing of the machine itself (clock, names, entropy) is touched. */
  bool is_guest;
  /* May not switch users. */
  bool is_rootless;
  bool is_stopping;
};

/* Prepares everything but the link. False with a logged reason. */
bool agent_open(struct agent *agent, const char *token);
/* Serves until told to stop by SIGTERM or SIGINT (never, as PID 1). */
void agent_serve(struct agent *agent);
/* Kills what it started and closes everything. */
void agent_close(struct agent *agent);

#endif
