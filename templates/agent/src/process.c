#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

void process_table_open(struct process_table *table) {
  struct sysinfo info;
  uint64_t memory = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 0;
  uint64_t share = memory / 8;
  table->retained.most = share > 0 && share < RETAINED_MAX ? (size_t)share : RETAINED_MAX;
}

struct process *process_find(struct process_table *table, const char *id) {
  for (struct process *process = table->first; process; process = process->next)
    if (!process->is_forgotten && strcmp(process->id, id) == 0) return process;
  return NULL;
}

/* The longest-known exited record goes first. Records are kept in the order of their start, which is near enough. */
static bool evict(struct process_table *table) {
  for (struct process *process = table->first; process; process = process->next) {
    if (process->is_forgotten || process->state != PROCESS_EXITED) continue;
    process_forget(process);
    return true;
  }
  return false;
}

static void on_timeout(struct timer *timer) {
  struct process *process = timer->owner;
  process->is_timed_out = true;
  process_kill(process);
}

static bool make_group(struct process *process) {
  struct agent *agent = process->agent;
  if (agent->cgroups.base_fd < 0) return true;
  snprintf(process->group, sizeof process->group, "%s.%u", process->id, ++agent->processes.sequence);
  process->group_fd = cgroup_make(&agent->cgroups, process->group);
  if (process->group_fd < 0) process->group[0] = 0;
  return process->group_fd >= 0;
}

struct process *process_record(struct agent *agent, const char *id, enum failure *failure) {
  struct process_table *table = &agent->processes;
  struct process *known = process_find(table, id);
  if (known && known->state != PROCESS_EXITED) {
    *failure = FAIL_EXISTS;
    return NULL;
  }
  if (known) {
    process_kill(known);
    process_forget(known);
  }
  if (table->count >= PROCESS_MAX && !evict(table)) {
    *failure = FAIL_TOO_MANY_PROCESSES;
    return NULL;
  }
  struct process *process = calloc(1, sizeof *process);
  if (!process) {
    *failure = FAIL_NO_MEMORY;
    return NULL;
  }
  process->agent = agent;
  snprintf(process->id, sizeof process->id, "%s", id);
  process->group_fd = process->stdin_fd = process->stdin_watch.fd = process->exec_watch.fd = -1;
  process->timeout = (struct timer){.fn = on_timeout, .owner = process};
  for (int i = 0; i < OUTPUTS; i++) process->outputs[i].fd = process->outputs[i].watch.fd = -1;
  if (!make_group(process)) {
    *failure = failure_of_errno(errno);
    free(process);
    return NULL;
  }
  struct process **tail = &table->first;
  while (*tail) tail = &(*tail)->next;
  *tail = process;
  table->count++;
  return process;
}

void process_kill(struct process *process) {
  cgroup_kill(process->group_fd);
  /* Also without a group, and for the moment before the kernel has put the child into it. */
  if (process->pid > 0 && process->state != PROCESS_EXITED) kill(-process->pid, SIGKILL);
  if (process->pid > 0 && process->state != PROCESS_EXITED) kill(process->pid, SIGKILL);
}

static void answer_waiters(struct process *process) {
  while (process->waiters) {
    struct waiter *waiter = process->waiters;
    process->waiters = waiter->next;
    waiter->process = NULL;
    if (process->state == PROCESS_EXITED) {
      struct text body = {0};
      process_status(&body, process);
      request_json(waiter->request, 200, &body);
    } else {
      request_fail(waiter->request, FAIL_NOT_FOUND, "the process was deleted");
    }
  }
}

static void answer_starter(struct process *process) {
  int fd = process->exec_watch.fd;
  loop_remove(&process->agent->loop, &process->exec_watch);
  if (fd >= 0) close(fd);
  struct request *starter = process->starter;
  process->starter = NULL;
  if (!starter) return;
  starter->state = NULL;
  request_fail(starter, FAIL_CONFLICT, "the process was deleted while it started");
}

void process_forget(struct process *process) {
  if (process->is_forgotten) return;
  process->is_forgotten = true;
  process->agent->processes.count--;
  answer_starter(process);
  answer_waiters(process);
  stdin_close(process);
  for (int i = 0; i < OUTPUTS; i++) output_close(&process->outputs[i]);
  loop_disarm(&process->agent->loop, &process->timeout);
}

void process_reaped(struct agent *agent, pid_t pid, int status) {
  struct process *process = agent->processes.first;
  while (process && (process->pid != pid || process->state == PROCESS_EXITED)) process = process->next;
  if (!process) return;
  process->state = PROCESS_EXITED;
  process->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  process->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  process->is_out_of_memory = cgroup_has_oom_kill(process->group_fd);
  loop_disarm(&agent->loop, &process->timeout);
  if (process->is_forgotten) return;
  stdin_close(process);
  for (int i = 0; i < OUTPUTS; i++)
    if (process->outputs[i].process) output_finish(&process->outputs[i]);
  answer_waiters(process);
}

/* Whether no process is left in the group; the group is removed then. */
static bool is_group_gone(struct process *process) {
  if (!process->group[0]) return true;
  if (!cgroup_remove(&process->agent->cgroups, process->group)) return false;
  close(process->group_fd);
  process->group_fd = -1;
  process->group[0] = 0;
  return true;
}

void process_sweep(struct agent *agent) {
  for (struct process **place = &agent->processes.first; *place;) {
    struct process *process = *place;
    bool is_over = process->state == PROCESS_EXITED && is_group_gone(process);
    if (is_over && process->is_forgotten) {
      *place = process->next;
      free(process->note);
      free(process);
    } else {
      place = &process->next;
    }
  }
}

void process_table_close(struct agent *agent) {
  for (struct process *process = agent->processes.first; process; process = process->next) {
    process_kill(process);
    process_forget(process);
  }
  int status;
  /* A process that was just killed ends within a moment; a group that can't be emptied is left to the kernel. */
  for (int i = 0; i < 200 && agent->processes.first; i++) {
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) process_reaped(agent, pid, status);
    process_sweep(agent);
    if (agent->processes.first) nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
  }
}
