/* A small strict JSON reader (RFC 8259): bounded depth and node count, well-formed UTF-8 only, no duplicate keys. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
  enum json_kind kind;
  /* Set for members of an object. */
  const char *key;
  /* Decoded and NUL-terminated; a string with an inner NUL is refused while parsing. */
  const char *string;
  double number;
  struct json *children;
  struct json *next;
};

struct json_document {
  struct json *nodes;
  size_t used;
  /* Says what is wrong when parsing failed. */
  const char *problem;
};

/*
 * Parses `length` bytes of `source` in place: strings are decoded into it, so it must outlive the document and
 * be writable. Returns the root, or NULL with `problem` set (also when memory is short).
 */
struct json *json_parse(struct json_document *document, char *source, size_t length);
void json_free(struct json_document *document);

/* The member called `key`, or NULL. */
const struct json *json_get(const struct json *object, const char *key);
/* The first key that is not in the NULL-terminated list, or NULL when all are known. */
const char *json_unknown_key(const struct json *object, const char *const *known);
/* Whether the value is an integer within the bounds; stores it. */
bool json_integer(const struct json *value, int64_t least, int64_t most, int64_t *out);

#endif
