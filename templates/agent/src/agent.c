#include "agent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "identity.h"
#include "log.h"

/* One turn reads at most this much, so that processes and timers get their share of a busy channel. */
enum { READ_SIZE = 64 * 1024, READS_PER_TURN = 8 };

static void flush(struct agent *agent) {
  size_t length;
  for (const uint8_t *bytes; (bytes = session_output(&agent->session, &length));) {
    size_t written = link_write(&agent->link, bytes, length);
    if (written == 0) return;
    session_written(&agent->session, written);
  }
}

/* Tells the peer why (GOAWAY) as far as the channel takes it now, and waits for the next preamble. */
static void give_up(struct agent *agent) {
  flush(agent);
  session_drop(&agent->session);
  link_hang_up(&agent->link);
}

static void greet(struct agent *agent, const uint8_t *preamble) {
  char answer[PREAMBLE_MAGIC + NONCE_DIGITS + 1 + CLOCK_DIGITS + 2];
  long long clock = identity_greeted(agent, (const char *)preamble + CLOCK_AT, (const char *)preamble + ENTROPY_AT);
  snprintf(answer, sizeof answer, "SNAPGATE-READY/2 %.*s %016llx\n", NONCE_DIGITS, preamble + NONCE_AT, clock);
  session_drop(&agent->session);
  if (session_start(&agent->session, agent)) session_prepend(&agent->session, answer, sizeof answer - 1);
  else agent_log("session: no memory");
}

static void take_step(struct agent *agent, const struct preamble_step *step) {
  if (step->event == PREAMBLE_MATCH) greet(agent, step->bytes);
  else if (step->event == PREAMBLE_FORWARD && agent->session.h2 &&
           !session_receive(&agent->session, step->bytes, step->length))
    give_up(agent);
}

static void on_hold(struct timer *timer) {
  struct agent *agent = timer->owner;
  struct preamble_step step;
  preamble_release(&agent->preamble, &step);
  take_step(agent, &step);
  if (preamble_is_holding(&agent->preamble)) loop_arm(&agent->loop, &agent->hold, PREAMBLE_HOLD_MS);
}

static void take_input(struct agent *agent, const uint8_t *bytes, size_t length) {
  while (length > 0) {
    struct preamble_step step;
    size_t used = preamble_scan(&agent->preamble, bytes, length, &step);
    take_step(agent, &step);
    bytes += used;
    length -= used;
  }
  if (preamble_is_holding(&agent->preamble)) loop_arm(&agent->loop, &agent->hold, PREAMBLE_HOLD_MS);
  else loop_disarm(&agent->loop, &agent->hold);
}

static void receive(struct agent *agent) {
  static uint8_t buffer[READ_SIZE];
  for (int i = 0; i < READS_PER_TURN && agent->link.is_readable; i++) {
    ssize_t size = link_read(&agent->link, buffer, sizeof buffer);
    if (size > 0) {
      take_input(agent, buffer, (size_t)size);
    } else if (size < 0) {
      agent->preamble.matched = agent->preamble.released = 0;
      session_drop(&agent->session);
    }
  }
}

static void reap(struct agent *agent) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) process_reaped(agent, pid, status);
  process_sweep(agent);
}

static void on_signal(struct watch *watch, uint32_t events) {
  struct agent *agent = watch->owner;
  (void)events;
  struct signalfd_siginfo info;
  while (read(watch->fd, &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) agent->is_stopping = !agent->is_guest;
  reap(agent);
}

static bool open_signals(struct agent *agent) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  signal(SIGPIPE, SIG_IGN);
  if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) return false;
  int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return false;
  agent->signals = (struct watch){.fd = -1, .fn = on_signal, .owner = agent};
  if (loop_add(&agent->loop, &agent->signals, fd, EPOLLIN)) return true;
  close(fd);
  return false;
}

bool agent_open(struct agent *agent, const char *token) {
  memcpy(agent->preamble.token, token, TOKEN_DIGITS);
  agent->hold = (struct timer){.fn = on_hold, .owner = agent};
  process_table_open(&agent->processes);
  if (!loop_open(&agent->loop) || !open_signals(agent)) {
    agent_log("cannot set up the loop: %s", strerror(errno));
    return false;
  }
  /* Descendants whose parent ended become ours, in a test as in a guest, so that we can reap them. */
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  return true;
}

void agent_serve(struct agent *agent) {
  while (!agent->is_stopping) {
    receive(agent);
    flush(agent);
    loop_turn(&agent->loop, agent->link.is_readable);
  }
}

void agent_close(struct agent *agent) {
  session_drop(&agent->session);
  process_table_close(agent);
  link_close(&agent->link);
  int fd = agent->signals.fd;
  loop_remove(&agent->loop, &agent->signals);
  close(fd);
  loop_disarm(&agent->loop, &agent->hold);
  close(agent->loop.epoll_fd);
}
