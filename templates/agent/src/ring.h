/* The retained tail of a byte stream. Grows as needed, within its own bound and that of all rings together. */
#ifndef RING_H
#define RING_H

#include <stddef.h>
#include <stdint.h>

enum { RING_MAX = 1024 * 1024, RING_FIRST = 4096 };

/* Shared by all rings: how much they hold in memory, and may. */
struct ring_budget {
  size_t used;
  size_t most;
};

struct ring {
  struct ring_budget *budget;
  uint8_t *data;
  size_t capacity;
  size_t length;
  /* All bytes ever written: the stream's offset after the newest. */
  uint64_t total;
};

/* Tries to make place for `extra` more without dropping anything; returns how much of it there is. */
size_t ring_reserve(struct ring *ring, size_t extra);
/* Appends; the oldest bytes go when there is no place. */
void ring_write(struct ring *ring, const uint8_t *bytes, size_t length);
/* Offset of the oldest byte that is still there. */
uint64_t ring_first(const struct ring *ring);
/* Copies from `offset` (not older than ring_first) and returns how much. */
size_t ring_read(const struct ring *ring, uint64_t offset, uint8_t *buffer, size_t length);
void ring_free(struct ring *ring);

#endif
