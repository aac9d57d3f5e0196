/* Forking: the child is born inside its control group and gets a session, a user, a directory and three descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"
#include "process.h"

/* Ends of the child are closed in the parent after the fork, all others when something fails. */
struct plumbing {
  int child[3];
  int parent[3];
  int exec[2];
};

/* What a child that can't exec writes into the exec pipe. */
struct exec_report {
  int error;
  char what[28];
};

static const rlim_t most_files = 524288;

static void close_all(int *fds, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (fds[i] >= 0) close(fds[i]);
    fds[i] = -1;
  }
}

static void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static bool make_pipe(int *read_end, int *write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return false;
  *read_end = ends[0];
  *write_end = ends[1];
  return true;
}

static bool plumb_pty(struct plumbing *plumbing, const struct process_spec *spec) {
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0) return false;
  plumbing->parent[1] = master;
  int unlocked = 0;
  struct winsize size = {.ws_col = spec->cols, .ws_row = spec->rows};
  if (ioctl(master, TIOCSPTLCK, &unlocked) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0) return false;
  int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return false;
  plumbing->child[0] = slave;
  if (geteuid() == 0 && fchown(slave, spec->account.uid, (gid_t)-1) < 0) return false;
  /* A descriptor of its own for input: it can be watched and closed apart. */
  plumbing->parent[0] = fcntl(master, F_DUPFD_CLOEXEC, 3);
  plumbing->child[1] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
  plumbing->child[2] = fcntl(slave, F_DUPFD_CLOEXEC, 3);
  return plumbing->parent[0] >= 0 && plumbing->child[1] >= 0 && plumbing->child[2] >= 0;
}

static bool plumb_pipes(struct plumbing *plumbing, const struct process_spec *spec) {
  if (spec->has_stdin) {
    if (!make_pipe(&plumbing->child[0], &plumbing->parent[0])) return false;
    unblock(plumbing->parent[0]);
  } else {
    plumbing->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (plumbing->child[0] < 0) return false;
  }
  for (int i = 1; i < 3; i++) {
    if (!make_pipe(&plumbing->parent[i], &plumbing->child[i])) return false;
    unblock(plumbing->parent[i]);
  }
  return true;
}

static void give_up(int exec_fd, const char *what) {
  struct exec_report report = {.error = errno};
  snprintf(report.what, sizeof report.what, "%s", what);
  if (write(exec_fd, &report, sizeof report) < 0) _exit(126);
  _exit(127);
}

/* The agent is the last to be killed for memory; its children must not inherit that. */
static void reset_oom_score(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, "0", 1) < 0) errno = 0;
  close(fd);
}

static void become(const struct account *account, int exec_fd) {
  if (geteuid() != 0) return;
  if (syscall(SYS_setgroups, account->group_count, account->groups) < 0 ||
      syscall(SYS_setresgid, account->gid, account->gid, account->gid) < 0 ||
      syscall(SYS_setresuid, account->uid, account->uid, account->uid) < 0)
    give_up(exec_fd, "user");
}

static void reset_signals(void) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  for (int number = 1; number < NSIG; number++) sigaction(number, &standard, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static void run_child(const struct plumbing *plumbing, const struct process_spec *spec) {
  int exec_fd = plumbing->exec[1];
  reset_signals();
  setsid();
  for (int i = 0; i < 3; i++)
    if (dup2(plumbing->child[i], i) < 0) give_up(exec_fd, "descriptors");
  if (spec->has_pty && ioctl(0, TIOCSCTTY, 0) < 0) give_up(exec_fd, "terminal");
  reset_oom_score();
  const struct rlimit files = {.rlim_cur = 1024, .rlim_max = most_files};
  setrlimit(RLIMIT_NOFILE, &files);
  umask(022);
  become(&spec->account, exec_fd);
  if (chdir(spec->cwd) < 0) give_up(exec_fd, "cwd");
  environ = spec->env;
  execvp(spec->argv[0], spec->argv);
  give_up(exec_fd, "argv");
}

/* A fork which puts the child into its group before it runs, so that nothing it starts can escape. */
static pid_t fork_into(int group_fd) {
  struct clone_args args = {.exit_signal = SIGCHLD};
  if (group_fd < 0) return fork();
  args.flags = CLONE_INTO_CGROUP;
  args.cgroup = (uint64_t)group_fd;
  return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void on_exec(struct watch *watch, uint32_t events) {
  struct process *process = watch->owner;
  (void)events;
  int fd = watch->fd;
  struct exec_report report;
  ssize_t size = read(fd, &report, sizeof report);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  loop_remove(&process->agent->loop, watch);
  close(fd);
  struct request *starter = process->starter;
  process->starter = NULL;
  if (starter) starter->state = NULL;
  if (size == (ssize_t)sizeof report) {
    report.what[sizeof report.what - 1] = 0;
    if (starter) request_fail_errno(starter, report.error, report.what);
    process_forget(process);
    return;
  }
  if (process->state == PROCESS_STARTING) process->state = PROCESS_RUNNING;
  if (!starter) return;
  struct text body = {0};
  process_status(&body, process);
  request_json(starter, 201, &body);
}

/* Descriptors go over to the record one by one; what is left in `plumbing` is still the caller's. */
static bool adopt(struct process *process, struct plumbing *plumbing, const struct process_spec *spec) {
  struct loop *loop = &process->agent->loop;
  process->exec_watch = (struct watch){.fd = -1, .fn = on_exec, .owner = process};
  unblock(plumbing->exec[0]);
  if (!loop_add(loop, &process->exec_watch, plumbing->exec[0], EPOLLIN)) return false;
  plumbing->exec[0] = -1;
  for (int i = 0; i < (spec->has_pty ? 1 : 2); i++) {
    if (!output_open(&process->outputs[i], process, plumbing->parent[i + 1])) return false;
    plumbing->parent[i + 1] = -1;
  }
  process->stdin_fd = plumbing->parent[0];
  plumbing->parent[0] = -1;
  return true;
}

static void release(struct plumbing *plumbing) {
  close_all(plumbing->child, 3);
  close_all(plumbing->parent, 3);
  close_all(plumbing->exec, 2);
}

int process_spawn(struct process *process, const struct process_spec *spec, const char **what) {
  struct plumbing plumbing = {{-1, -1, -1}, {-1, -1, -1}, {-1, -1}};
  process->has_pty = spec->has_pty;
  *what = spec->has_pty ? "terminal" : "pipe";
  bool is_plumbed = make_pipe(&plumbing.exec[0], &plumbing.exec[1]) &&
                    (spec->has_pty ? plumb_pty(&plumbing, spec) : plumb_pipes(&plumbing, spec));
  if (is_plumbed) {
    *what = "fork";
    process->pid = fork_into(process->group_fd);
    if (process->pid == 0) run_child(&plumbing, spec);
  }
  if (!is_plumbed || process->pid < 0) {
    int error = errno;
    process->pid = 0;
    process->state = PROCESS_EXITED;
    release(&plumbing);
    return error;
  }
  close_all(plumbing.child, 3);
  close_all(&plumbing.exec[1], 1);
  if (!adopt(process, &plumbing, spec)) {
    int error = errno;
    *what = "watch";
    process_kill(process);
    release(&plumbing);
    return error;
  }
  if (spec->timeout_ms > 0) loop_arm(&process->agent->loop, &process->timeout, (uint64_t)spec->timeout_ms);
  return 0;
}
