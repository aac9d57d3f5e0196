/* Query values: percent-encoded bytes after `?name=` or `&name=`. */
#ifndef QUERY_H
#define QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum query_result { QUERY_ABSENT, QUERY_FOUND, QUERY_MALFORMED };

/* Decodes the value into `out` (NUL-terminated). Malformed: bad escape, NUL, or longer than `size` - 1 bytes. */
enum query_result query_text(const char *query, const char *name, char *out, size_t size);
enum query_result query_integer(const char *query, const char *name, int64_t least, int64_t most, int64_t *out);
/* Decodes in place; false when an escape is bad or stands for NUL. */
bool percent_decode(char *text);

#endif
