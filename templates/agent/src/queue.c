#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* An empty queue larger than this gives its memory back. */
enum { QUEUE_KEPT = 16 * 1024 };

bool queue_push(struct queue *queue, const uint8_t *bytes, size_t length) {
  if (queue->start + queue->length + length > queue->capacity && queue->start > 0) {
    memmove(queue->data, queue->data + queue->start, queue->length);
    queue->start = 0;
  }
  if (queue->length + length > queue->capacity) {
    size_t wanted = queue->capacity ? queue->capacity * 2 : 4096;
    while (wanted < queue->length + length) wanted *= 2;
    uint8_t *data = realloc(queue->data, wanted);
    if (!data) return false;
    queue->data = data;
    queue->capacity = wanted;
  }
  memcpy(queue->data + queue->start + queue->length, bytes, length);
  queue->length += length;
  return true;
}

void queue_pop(struct queue *queue, size_t length) {
  queue->start += length;
  queue->length -= length;
  if (queue->length > 0) return;
  queue->start = 0;
  if (queue->capacity > QUEUE_KEPT) queue_free(queue);
}

void queue_free(struct queue *queue) {
  free(queue->data);
  *queue = (struct queue){0};
}
