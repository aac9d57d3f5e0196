#include "ring.h"

#include <stdlib.h>
#include <string.h>

static void copy_out(const struct ring *ring, uint64_t offset, uint8_t *to, size_t length) {
  size_t at = (size_t)(offset % ring->capacity);
  size_t first = ring->capacity - at < length ? ring->capacity - at : length;
  memcpy(to, ring->data + at, first);
  memcpy(to + first, ring->data, length - first);
}

/* Bytes sit at their stream offset modulo the capacity, so growing means laying them out anew. */
static void grow(struct ring *ring, size_t capacity) {
  if (ring->budget->used - ring->capacity + capacity > ring->budget->most && ring->capacity >= RING_FIRST) return;
  uint8_t *data = malloc(capacity);
  if (!data) return;
  struct ring grown = {.budget = ring->budget, .data = data, .capacity = capacity, .total = ring_first(ring)};
  if (ring->length > 0) {
    size_t at = (size_t)(ring_first(ring) % ring->capacity);
    size_t first = ring->capacity - at < ring->length ? ring->capacity - at : ring->length;
    ring_write(&grown, ring->data + at, first);
    ring_write(&grown, ring->data, ring->length - first);
  }
  free(ring->data);
  ring->budget->used += capacity - ring->capacity;
  grown.total = ring->total;
  *ring = grown;
}

size_t ring_reserve(struct ring *ring, size_t extra) {
  size_t wanted = ring->capacity ? ring->capacity : RING_FIRST;
  while (wanted < RING_MAX && wanted - ring->length < extra) wanted *= 2;
  if (wanted > ring->capacity) grow(ring, wanted);
  size_t room = ring->capacity - ring->length;
  return room < extra ? room : extra;
}

void ring_write(struct ring *ring, const uint8_t *bytes, size_t length) {
  if (length > ring->capacity - ring->length) ring_reserve(ring, length);
  ring->total += length;
  if (ring->capacity == 0) return;
  size_t kept = length < ring->capacity ? length : ring->capacity;
  bytes += length - kept;
  size_t at = (size_t)((ring->total - kept) % ring->capacity);
  size_t first = ring->capacity - at < kept ? ring->capacity - at : kept;
  memcpy(ring->data + at, bytes, first);
  memcpy(ring->data, bytes + first, kept - first);
  size_t length_now = ring->length + length;
  ring->length = length_now < ring->capacity ? length_now : ring->capacity;
}

uint64_t ring_first(const struct ring *ring) { return ring->total - ring->length; }

size_t ring_read(const struct ring *ring, uint64_t offset, uint8_t *buffer, size_t length) {
  uint64_t left = ring->total - offset;
  size_t size = left < length ? (size_t)left : length;
  if (size > 0) copy_out(ring, offset, buffer, size);
  return size;
}

void ring_free(struct ring *ring) {
  if (ring->budget) ring->budget->used -= ring->capacity;
  free(ring->data);
  ring->data = NULL;
  ring->capacity = ring->length = 0;
}
