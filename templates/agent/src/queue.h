/* Bytes of the host that a descriptor in the guest has not taken yet. The stream's window bounds it. */
#ifndef QUEUE_H
#define QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue {
  uint8_t *data;
  size_t start;
  size_t length;
  size_t capacity;
};

/* False when memory is short; nothing was added then. */
bool queue_push(struct queue *queue, const uint8_t *bytes, size_t length);
static inline const uint8_t *queue_front(const struct queue *queue) { return queue->data + queue->start; }
void queue_pop(struct queue *queue, size_t length);
void queue_free(struct queue *queue);

#endif
