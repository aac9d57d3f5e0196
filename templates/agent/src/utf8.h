#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>

/* Size of the well-formed UTF-8 sequence at the front of `bytes`, 0 when there is none (surrogates and overlong forms included). */
size_t utf8_size(const unsigned char *bytes, size_t length);

#endif
