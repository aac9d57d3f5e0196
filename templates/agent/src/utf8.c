#include "utf8.h"

size_t utf8_size(const unsigned char *bytes, size_t length) {
  if (length == 0) return 0;
  unsigned char lead = bytes[0];
  if (lead < 0x80) return 1;
  size_t size;
  unsigned char low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) size = 2;
  else if (lead >= 0xe0 && lead <= 0xef) size = 3;
  else if (lead >= 0xf0 && lead <= 0xf4) size = 4;
  else return 0;
  if (length < size) return 0;
  /* The second byte carries what rules out overlong forms, surrogates and values past U+10FFFF. */
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  if (bytes[1] < low || bytes[1] > high) return 0;
  for (size_t i = 2; i < size; i++)
    if (bytes[i] < 0x80 || bytes[i] > 0xbf) return 0;
  return size;
}
