/* Input of a process: one writer at a time; offsets make a retry after a lost connection harmless. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent.h"
#include "process.h"

static void detach(struct writer *writer) {
  struct process *process = writer->process;
  if (!process) return;
  writer->accepted = process->stdin_offset;
  loop_remove(&process->agent->loop, &process->stdin_watch);
  process->writer = NULL;
  writer->process = NULL;
}

static void answer(struct writer *writer) {
  struct text body = {0};
  text_addf(&body, "{\"offset\":%llu}", (unsigned long long)writer->accepted);
  request_json(writer->request, 200, &body);
}

static void refuse(struct writer *writer) {
  request_fail(writer->request, FAIL_CONFLICT, "the process reads no more input");
}

void stdin_close(struct process *process) {
  struct writer *writer = process->writer;
  if (writer) {
    bool has_rest = writer->queue.length > 0;
    request_consumed(writer->request, writer->queue.length);
    queue_free(&writer->queue);
    detach(writer);
    /* When the process took all there was and ended, the body may end well too: that is only known when it ends. */
    if (has_rest) refuse(writer);
    else if (writer->request->is_body_ended) answer(writer);
  }
  if (process->stdin_fd >= 0) close(process->stdin_fd);
  process->stdin_fd = -1;
}

static void finish(struct writer *writer) {
  struct process *process = writer->process;
  bool is_closing = writer->is_closing;
  detach(writer);
  if (is_closing && !process->has_pty) stdin_close(process);
  answer(writer);
}

/* Waits until the descriptor takes more; without that, the request can't go on. */
static void wait_writable(struct process *process) {
  if (process->stdin_watch.fd >= 0) return;
  if (!loop_add(&process->agent->loop, &process->stdin_watch, process->stdin_fd, EPOLLOUT)) stdin_close(process);
}

/* False when not all was taken: then it waits, or the input is closed. */
static bool put(struct process *process, const uint8_t *bytes, size_t length, size_t *written) {
  ssize_t size = write(process->stdin_fd, bytes, length);
  *written = size > 0 ? (size_t)size : 0;
  if (size >= 0 || errno == EINTR) return true;
  if (errno == EAGAIN) wait_writable(process);
  else stdin_close(process);
  return false;
}

static void flush(struct writer *writer) {
  struct process *process = writer->process;
  struct queue *queue = &writer->queue;
  size_t written;
  while (queue->length > 0) {
    if (!put(process, queue_front(queue), queue->length, &written)) return;
    process->stdin_offset += written;
    queue_pop(queue, written);
    request_consumed(writer->request, written);
  }
  if (writer->request->is_body_ended) {
    /* A terminal can't be half-closed: its EOF character ends the input. */
    static const uint8_t end_of_input = 4;
    if (writer->is_closing && process->has_pty)
      do
        if (!put(process, &end_of_input, 1, &written)) return;
      while (written == 0);
    finish(writer);
  } else {
    loop_remove(&process->agent->loop, &process->stdin_watch);
  }
}

static void on_writable(struct watch *watch, uint32_t events) {
  struct process *process = watch->owner;
  (void)events;
  flush(process->writer);
}

static void on_body(struct request *request, const uint8_t *bytes, size_t length) {
  struct writer *writer = request->state;
  struct process *process = writer->process;
  if (!process) {
    request_consumed(request, length);
    writer->offset += length;
    if (writer->offset > writer->accepted) refuse(writer);
    return;
  }
  uint64_t expected = process->stdin_offset + writer->queue.length;
  size_t known = expected > writer->offset ? (size_t)(expected - writer->offset) : 0;
  if (known > length) known = length;
  writer->offset += length;
  request_consumed(request, known);
  if (known == length) return;
  if (!queue_push(&writer->queue, bytes + known, length - known)) {
    request_consumed(request, length - known);
    detach(writer);
    request_fail(request, FAIL_NO_MEMORY, "no memory for input");
    return;
  }
  flush(writer);
}

static void on_body_end(struct request *request) {
  struct writer *writer = request->state;
  if (writer->process) flush(writer);
  else answer(writer);
}

static void on_close(struct request *request) {
  struct writer *writer = request->state;
  detach(writer);
  queue_free(&writer->queue);
  free(writer);
}

void stdin_write(struct process *process, struct request *request, uint64_t offset, bool is_closing) {
  if (process->stdin_fd < 0 || process->writer || offset > process->stdin_offset) {
    request_fail(request, FAIL_CONFLICT,
                 process->stdin_fd < 0 ? "the input is closed"
                 : process->writer     ? "another request is writing"
                                       : "bytes are missing before this offset");
    return;
  }
  struct writer *writer = calloc(1, sizeof *writer);
  if (!writer) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for a writer");
    return;
  }
  *writer = (struct writer){.request = request, .process = process, .offset = offset, .is_closing = is_closing};
  process->writer = writer;
  process->stdin_watch = (struct watch){.fd = -1, .fn = on_writable, .owner = process};
  request->state = writer;
  request->on_body = on_body;
  request->on_body_end = on_body_end;
  request->on_close = on_close;
}
