#include "query.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int digit(char letter) {
  unsigned char byte = (unsigned char)letter;
  if (!isxdigit(byte)) return -1;
  return isdigit(byte) ? byte - '0' : (byte | 32) - 'a' + 10;
}

/* Decodes `length` bytes; returns the decoded length or -1. `to` may be `from`. */
static long decode(const char *from, size_t length, char *to, size_t size) {
  size_t used = 0;
  for (size_t at = 0; at < length; at++) {
    char byte = from[at];
    if (byte == '%') {
      int high = at + 2 < length ? digit(from[at + 1]) : -1, low = high >= 0 ? digit(from[at + 2]) : -1;
      if (low < 0) return -1;
      byte = (char)(high << 4 | low);
      at += 2;
    }
    if (byte == 0 || used + 1 >= size) return -1;
    to[used++] = byte;
  }
  to[used] = 0;
  return (long)used;
}

bool percent_decode(char *text) {
  size_t length = strlen(text);
  return decode(text, length, text, length + 1) >= 0;
}

enum query_result query_text(const char *query, const char *name, char *out, size_t size) {
  size_t name_length = strlen(name);
  for (const char *at = query; at && *at;) {
    size_t length = strcspn(at, "&");
    if (length > name_length && at[name_length] == '=' && memcmp(at, name, name_length) == 0)
      return decode(at + name_length + 1, length - name_length - 1, out, size) < 0 ? QUERY_MALFORMED : QUERY_FOUND;
    at += length + (at[length] == '&');
  }
  return QUERY_ABSENT;
}

enum query_result query_integer(const char *query, const char *name, int64_t least, int64_t most, int64_t *out) {
  char digits[24];
  enum query_result result = query_text(query, name, digits, sizeof digits);
  if (result != QUERY_FOUND) return result;
  char *end;
  errno = 0;
  long long value = strtoll(digits, &end, 10);
  bool is_number = isdigit((unsigned char)digits[0]) || (digits[0] == '-' && isdigit((unsigned char)digits[1]));
  if (!is_number || *end || errno || value < least || value > most) return QUERY_MALFORMED;
  *out = value;
  return QUERY_FOUND;
}
