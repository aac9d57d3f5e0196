/* Processes which the host started: their record, output, input and end. They outlive sessions. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "account.h"
#include "cgroup.h"
#include "failure.h"
#include "loop.h"
#include "queue.h"
#include "request.h"
#include "ring.h"

enum { PROCESS_MAX = 256, PROCESS_ID_MAX = 64, NOTE_MAX = 4096, OUTPUTS = 2, RETAINED_MAX = 64 * 1024 * 1024 };

struct process;
struct output;

/* A request that reads an output stream. */
struct follower {
  struct request *request;
  struct output *output;
  uint64_t offset;
  /* Without follow, where it ends. */
  uint64_t end;
  bool is_following;
  struct follower *next;
};

/* Reading end of a pipe, or the master side of a terminal. */
struct output {
  struct process *process;
  struct watch watch;
  int fd;
  struct ring ring;
  struct follower *followers;
  bool is_paused;
  /* The process has exited and what it wrote is in the ring. */
  bool is_drained;
  /* Stream offset after the process's own last byte, known once it has exited. */
  uint64_t last_offset;
};

/* A request that waits for the exit. */
struct waiter {
  struct request *request;
  struct process *process;
  struct waiter *next;
};

/* A request that writes to stdin. */
struct writer {
  struct request *request;
  struct process *process;
  /* Offset of the next byte of the body. */
  uint64_t offset;
  /* What the process had taken when it was last asked; stays true when it has gone. */
  uint64_t accepted;
  struct queue queue;
  bool is_closing;
};

enum process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_EXITED };

struct process {
  struct agent *agent;
  struct process *next;
  char id[PROCESS_ID_MAX + 1];
  /* What the starter wants to find with it again; NULL when there is none. */
  char *note;
  pid_t pid;
  enum process_state state;
  /* Nobody can name it any more; the record waits for the last process of its group to end. */
  bool is_forgotten;
  int exit_code;
  int signal;
  bool is_timed_out;
  bool is_out_of_memory;
  bool has_pty;

  int group_fd;
  char group[CGROUP_NAME_MAX];

  struct output outputs[OUTPUTS];
  int stdin_fd;
  struct watch stdin_watch;
  uint64_t stdin_offset;
  struct writer *writer;
  struct timer timeout;
  struct waiter *waiters;

  /* Tells whether exec worked: closed by it, or read with the reason. */
  struct watch exec_watch;
  struct request *starter;
};

struct process_table {
  struct process *first;
  size_t count;
  unsigned sequence;
  struct ring_budget retained;
};

/* What to start. Strings belong to the caller. */
struct process_spec {
  const char *id;
  const char *note;
  char **argv;
  char **env;
  const char *cwd;
  struct account account;
  bool has_stdin;
  bool has_pty;
  uint16_t cols, rows;
  int64_t timeout_ms;
};

void process_table_open(struct process_table *table);
/* Kills everything and frees every record. */
void process_table_close(struct agent *agent);
/* The record, or NULL. */
struct process *process_find(struct process_table *table, const char *id);
/* Makes a record in `PROCESS_STARTING`; NULL with `*failure` set. An exited record of the same id is replaced. */
struct process *process_record(struct agent *agent, const char *id, enum failure *failure);
/* Kills it and its descendants. */
void process_kill(struct process *process);
/* Releases what the record holds; it can't be found any more. */
void process_forget(struct process *process);
/* Called for every child that ended; unknown ones are just reaped. */
void process_reaped(struct agent *agent, pid_t pid, int status);
/* Removes groups whose last process has gone, and forgotten records. */
void process_sweep(struct agent *agent);

/* process-spawn.c: forks into the record. 0, or an errno with `*what` saying which step failed. */
int process_spawn(struct process *process, const struct process_spec *spec, const char **what);

/* process-output.c */
bool output_open(struct output *output, struct process *process, int fd);
void output_close(struct output *output);
/* Reads what is there, after an event or when a follower made room. */
void output_pump(struct output *output);
/* The process has exited: what is in the pipe now is the end of its own output. */
void output_finish(struct output *output);
/* Begins to answer `request` with the stream. */
void output_follow(struct output *output, struct request *request, int64_t offset, bool is_following);

/* process-stdin.c */
void stdin_write(struct process *process, struct request *request, uint64_t offset, bool is_closing);
void stdin_close(struct process *process);

/* process-status.c */
void process_status(struct text *text, const struct process *process);

#endif
