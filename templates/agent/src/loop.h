/* One epoll loop: watched descriptors and timers. No threads; callbacks may add and remove anything. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct watch;
typedef void watch_fn(struct watch *watch, uint32_t events);
/* Embedded in its owner; `fd` is -1 while nothing is watched. The loop never closes descriptors. */
struct watch {
  int fd;
  watch_fn *fn;
  void *owner;
};

struct timer;
typedef void timer_fn(struct timer *timer);
struct timer {
  uint64_t at_ms;
  timer_fn *fn;
  void *owner;
  struct timer *next;
  bool is_armed;
};

enum { LOOP_BATCH = 64 };
struct loop {
  int epoll_fd;
  struct epoll_event batch[LOOP_BATCH];
  int batch_count;
  struct timer *timers;
};

/* False with errno when the kernel refuses. */
bool loop_open(struct loop *loop);
bool loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events);
bool loop_change(struct loop *loop, struct watch *watch, uint32_t events);
/* Stops watching, also for events which were already fetched. Harmless when nothing is watched. */
void loop_remove(struct loop *loop, struct watch *watch);
void loop_arm(struct loop *loop, struct timer *timer, uint64_t after_ms);
void loop_disarm(struct loop *loop, struct timer *timer);
/* Waits for events (not at all when `is_busy`), then runs their callbacks and those of due timers. */
void loop_turn(struct loop *loop, bool is_busy);
uint64_t monotonic_ms(void);

#endif
