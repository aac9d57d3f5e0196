/* Output streams: pipe or terminal → ring → followers, with back-pressure only while somebody follows. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent.h"
#include "process.h"

enum { PIECE = 64 * 1024, PIECES_PER_EVENT = 4 };

static void on_event(struct watch *watch, uint32_t events) {
  (void)events;
  output_pump(watch->owner);
}

bool output_open(struct output *output, struct process *process, int fd) {
  output->watch = (struct watch){.fd = -1, .fn = on_event, .owner = output};
  if (!loop_add(&process->agent->loop, &output->watch, fd, EPOLLIN)) return false;
  output->process = process;
  output->fd = fd;
  output->ring = (struct ring){.budget = &process->agent->processes.retained};
  return true;
}

static void wake_followers(struct output *output) {
  for (struct follower *follower = output->followers; follower; follower = follower->next)
    request_wake(follower->request);
}

static void close_source(struct output *output) {
  if (output->fd < 0) return;
  loop_remove(&output->process->agent->loop, &output->watch);
  close(output->fd);
  output->fd = -1;
}

void output_close(struct output *output) {
  if (!output->process) return;
  close_source(output);
  output->is_drained = true;
  /* Followers end with what they have: the stream is gone from under them. */
  while (output->followers) {
    struct follower *follower = output->followers;
    output->followers = follower->next;
    follower->output = NULL;
    request_wake(follower->request);
  }
  ring_free(&output->ring);
}

/* How much may be read now: without followers always something, with them only what drops nothing unread. */
static size_t room(struct output *output) {
  struct ring *ring = &output->ring;
  size_t fresh = ring_reserve(ring, PIECE);
  /* Without memory for even the smallest ring, the bytes are lost; the process must not hang for that. */
  if (!output->followers || ring->capacity == 0) return PIECE;
  uint64_t oldest = ring->total;
  for (struct follower *follower = output->followers; follower; follower = follower->next)
    if (follower->offset < oldest) oldest = follower->offset;
  uint64_t taken = oldest > ring_first(ring) ? oldest - ring_first(ring) : 0;
  uint64_t all = fresh + taken;
  return all < PIECE ? (size_t)all : PIECE;
}

static void pause_source(struct output *output) {
  if (output->is_paused) return;
  /* Removed, not just masked: a hang-up is reported whatever the mask says. */
  loop_remove(&output->process->agent->loop, &output->watch);
  output->is_paused = true;
}

static void resume_source(struct output *output) {
  if (!output->is_paused || output->fd < 0) return;
  output->is_paused = !loop_add(&output->process->agent->loop, &output->watch, output->fd, EPOLLIN);
}

static void note_drained(struct output *output, bool is_empty) {
  if (output->is_drained || output->process->state != PROCESS_EXITED) return;
  output->is_drained = is_empty || output->ring.total >= output->last_offset;
}

void output_pump(struct output *output) {
  static uint8_t piece[PIECE];
  for (int i = 0; i < PIECES_PER_EVENT && output->fd >= 0; i++) {
    size_t most = room(output);
    if (most == 0) {
      pause_source(output);
      break;
    }
    ssize_t size = read(output->fd, piece, most);
    if (size > 0) {
      ring_write(&output->ring, piece, (size_t)size);
      note_drained(output, false);
      continue;
    }
    if (size < 0 && errno == EINTR) continue;
    if (size == 0 || errno != EAGAIN) {
      /* A terminal says EIO when its last user has closed it. */
      close_source(output);
    }
    note_drained(output, true);
    break;
  }
  wake_followers(output);
}

void output_finish(struct output *output) {
  int queued = 0;
  if (output->fd >= 0 && ioctl(output->fd, FIONREAD, &queued) < 0) queued = 0;
  output->last_offset = output->ring.total + (uint64_t)queued;
  if (output->fd >= 0) {
    output_pump(output);
  } else {
    output->is_drained = true;
    wake_followers(output);
  }
}

static ssize_t pull(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  struct follower *follower = request->state;
  struct output *output = follower->output;
  if (!output) {
    *is_last = true;
    return 0;
  }
  uint64_t end = follower->is_following ? output->ring.total : follower->end;
  uint64_t first = ring_first(&output->ring);
  if (follower->offset < first) follower->offset = first < end ? first : end;
  size_t wanted = end - follower->offset < length ? (size_t)(end - follower->offset) : length;
  size_t size = ring_read(&output->ring, follower->offset, buffer, wanted);
  follower->offset += size;
  bool is_over = !follower->is_following || output->is_drained;
  *is_last = follower->offset == end && is_over;
  if (size > 0) resume_source(output);
  return (ssize_t)size;
}

static void on_close(struct request *request) {
  struct follower *follower = request->state;
  struct output *output = follower->output;
  if (output) {
    struct follower **place = &output->followers;
    while (*place != follower) place = &(*place)->next;
    *place = follower->next;
    resume_source(output);
  }
  free(follower);
}

void output_follow(struct output *output, struct request *request, int64_t offset, bool is_following) {
  struct ring *ring = &output->ring;
  uint64_t first = ring_first(ring), start = (uint64_t)offset;
  if (offset < 0) start = (uint64_t)-offset > ring->total ? 0 : ring->total - (uint64_t)-offset;
  if (start > ring->total) {
    request_fail(request, FAIL_INVALID_REQUEST, "the offset is past the end of the stream");
    return;
  }
  struct follower *follower = calloc(1, sizeof *follower);
  if (!follower) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for a follower");
    return;
  }
  *follower = (struct follower){.request = request,
                                .output = output,
                                .offset = start > first ? start : first,
                                .end = ring->total,
                                .is_following = is_following,
                                .next = output->followers};
  output->followers = follower;
  request->state = follower;
  request->on_close = on_close;
  request_stream(request, "application/octet-stream", "x-agent-offset", follower->offset, pull);
}
