/* A growable byte string and the writing half of JSON. A failed allocation is remembered, not fatal. */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
  char *data;
  size_t length;
  size_t capacity;
  /* An allocation failed: the content is incomplete and must not be used. */
  bool failed;
};

void text_add(struct text *text, const void *bytes, size_t length);
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a quoted JSON string. Bytes which are no UTF-8 become U+FFFD, because JSON can't carry them. */
void text_add_json(struct text *text, const char *bytes, size_t length);
void text_add_json_string(struct text *text, const char *string);
/* Frees the content; the text is empty and usable again. */
void text_reset(struct text *text);

#endif
