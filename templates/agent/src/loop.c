#include "loop.h"

#include <errno.h>
#include <limits.h>
#include <time.h>
#include <unistd.h>

uint64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool loop_open(struct loop *loop) {
  *loop = (struct loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
  return loop->epoll_fd >= 0;
}

bool loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = watch};
  if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) return false;
  watch->fd = fd;
  return true;
}

bool loop_change(struct loop *loop, struct watch *watch, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = watch};
  return epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) == 0;
}

void loop_remove(struct loop *loop, struct watch *watch) {
  if (watch->fd < 0) return;
  epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
  watch->fd = -1;
  for (int i = 0; i < loop->batch_count; i++)
    if (loop->batch[i].data.ptr == watch) loop->batch[i].data.ptr = NULL;
}

void loop_arm(struct loop *loop, struct timer *timer, uint64_t after_ms) {
  loop_disarm(loop, timer);
  timer->at_ms = monotonic_ms() + after_ms;
  struct timer **place = &loop->timers;
  while (*place && (*place)->at_ms <= timer->at_ms) place = &(*place)->next;
  timer->next = *place;
  *place = timer;
  timer->is_armed = true;
}

void loop_disarm(struct loop *loop, struct timer *timer) {
  if (!timer->is_armed) return;
  struct timer **place = &loop->timers;
  while (*place != timer) place = &(*place)->next;
  *place = timer->next;
  timer->is_armed = false;
}

static int wait_ms(const struct loop *loop, bool is_busy) {
  if (is_busy) return 0;
  if (!loop->timers) return -1;
  uint64_t now = monotonic_ms();
  if (loop->timers->at_ms <= now) return 0;
  uint64_t left = loop->timers->at_ms - now;
  return left > INT_MAX ? INT_MAX : (int)left;
}

void loop_turn(struct loop *loop, bool is_busy) {
  int count = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, wait_ms(loop, is_busy));
  loop->batch_count = count > 0 ? count : 0;
  for (int i = 0; i < loop->batch_count; i++) {
    struct watch *watch = loop->batch[i].data.ptr;
    if (watch) watch->fn(watch, loop->batch[i].events);
  }
  loop->batch_count = 0;
  uint64_t now = monotonic_ms();
  while (loop->timers && loop->timers->at_ms <= now) {
    struct timer *due = loop->timers;
    loop_disarm(loop, due);
    due->fn(due);
  }
}
