#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

static bool reserve(struct text *text, size_t extra) {
  if (text->failed) return false;
  if (text->capacity - text->length >= extra) return true;
  size_t wanted = text->capacity ? text->capacity : 256;
  while (wanted - text->length < extra) wanted *= 2;
  char *data = realloc(text->data, wanted);
  if (!data) {
    text->failed = true;
    return false;
  }
  text->data = data;
  text->capacity = wanted;
  return true;
}

void text_add(struct text *text, const void *bytes, size_t length) {
  if (length == 0 || !reserve(text, length)) return;
  memcpy(text->data + text->length, bytes, length);
  text->length += length;
}

void text_addf(struct text *text, const char *format, ...) {
  char line[512];
  va_list list;
  va_start(list, format);
  int length = vsnprintf(line, sizeof line, format, list);
  va_end(list);
  if (length < 0 || (size_t)length >= sizeof line) {
    text->failed = true;
    return;
  }
  text_add(text, line, (size_t)length);
}

void text_add_json(struct text *text, const char *bytes, size_t length) {
  text_add(text, "\"", 1);
  for (size_t at = 0; at < length;) {
    unsigned char byte = (unsigned char)bytes[at];
    if (byte == '"' || byte == '\\') {
      text_addf(text, "\\%c", byte);
      at++;
    } else if (byte < 0x20 || byte == 0x7f) {
      text_addf(text, "\\u%04x", byte);
      at++;
    } else {
      size_t size = utf8_size((const unsigned char *)bytes + at, length - at);
      if (size > 0) text_add(text, bytes + at, size);
      else text_add(text, "\\ufffd", 6);
      at += size > 0 ? size : 1;
    }
  }
  text_add(text, "\"", 1);
}

void text_add_json_string(struct text *text, const char *string) {
  text_add_json(text, string, strlen(string));
}

void text_reset(struct text *text) {
  free(text->data);
  *text = (struct text){0};
}
