#include "process.h"

static void add_null(struct text *text, const char *name, bool has_value, int value) {
  text_addf(text, ",\"%s\":", name);
  if (has_value) text_addf(text, "%d", value);
  else text_addf(text, "null");
}

static const char *word(bool value) { return value ? "true" : "false"; }

void process_status(struct text *text, const struct process *process) {
  bool has_exited = process->state == PROCESS_EXITED;
  text_addf(text, "{\"id\":");
  text_add_json_string(text, process->id);
  text_addf(text, ",\"pid\":%d,\"state\":\"%s\"", (int)process->pid, has_exited ? "exited" : "running");
  add_null(text, "exitCode", has_exited && process->signal == 0, process->exit_code);
  add_null(text, "signal", has_exited && process->signal != 0, process->signal);
  text_addf(text, ",\"timedOut\":%s,\"outOfMemory\":%s,\"isPty\":%s", word(process->is_timed_out),
            word(process->is_out_of_memory), word(process->has_pty));
  text_addf(text, ",\"stdoutBytes\":%llu,\"stderrBytes\":%llu,\"stdinBytes\":%llu",
            (unsigned long long)process->outputs[0].ring.total, (unsigned long long)process->outputs[1].ring.total,
            (unsigned long long)process->stdin_offset);
  if (process->note) text_addf(text, ",\"note\":\"%s\"", process->note);
  text_add(text, "}", 1);
}
