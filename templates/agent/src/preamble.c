#define _GNU_SOURCE
#include "preamble.h"

#include <string.h>

static const char magic[] = "SNAPGATE-HELLO/2 ";

/*
 * Fewer matching bytes than this at the end of a read are passed on at once: a data frame that ends in "S" must not
 * wait. More are held, so that neither the token nor most of the magic ever reaches a tunnel of a stale session.
 */
enum { HOLD_FROM = 3, GUESSED_DIGITS = 16 };

static bool is_hex_digit(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

bool is_hex(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (!is_hex_digit((uint8_t)text[i])) return false;
  return true;
}

/*
 * Only the public structure decides whether bytes are held; the token is compared once all of it is there.
 * Otherwise a peer of a tunnel could measure, digit by digit, whether its guess is held back longer.
 */
static bool fits(size_t at, uint8_t byte) {
  if (at < PREAMBLE_MAGIC) return byte == (uint8_t)magic[at];
  if (at == NONCE_AT - 1 || at == CLOCK_AT - 1 || at == ENTROPY_AT - 1) return byte == ' ';
  return at < BREAKS_AT ? is_hex_digit(byte) : byte == '\n';
}

static bool has_token(const struct preamble *preamble, size_t digits) {
  uint8_t difference = 0;
  for (size_t i = 0; i < digits; i++)
    difference |= preamble->held[PREAMBLE_MAGIC + i] ^ (uint8_t)preamble->token[i];
  return difference == 0;
}

/* Offset of the first byte which may begin a preamble; `length` when there is none. "S" occurs in the magic once. */
static size_t find_start(const uint8_t *data, size_t length) {
  const uint8_t *found = memmem(data, length, magic, PREAMBLE_MAGIC);
  if (found) return (size_t)(found - data);
  size_t tail = length < PREAMBLE_MAGIC - 1 ? length : PREAMBLE_MAGIC - 1;
  const uint8_t *last = memrchr(data + length - tail, 'S', tail);
  if (!last) return length;
  size_t at = (size_t)(last - data);
  return memcmp(last, magic, length - at) == 0 ? at : length;
}

static void forward(struct preamble_step *step, const uint8_t *bytes, size_t length) {
  *step = (struct preamble_step){length > 0 ? PREAMBLE_FORWARD : PREAMBLE_NOTHING, bytes, length};
}

static void forward_held(struct preamble *preamble, struct preamble_step *step) {
  forward(step, preamble->held + preamble->released, preamble->matched - preamble->released);
  preamble->released = preamble->matched;
}

static void restart(struct preamble *preamble) { preamble->matched = preamble->released = 0; }

size_t preamble_scan(struct preamble *preamble, const uint8_t *data, size_t length, struct preamble_step *step) {
  if (preamble->matched == 0) {
    size_t start = find_start(data, length);
    if (start > 0) {
      forward(step, data, start);
      return start;
    }
  }
  size_t at = 0;
  while (at < length && preamble->matched < PREAMBLE_SIZE && fits(preamble->matched, data[at]))
    preamble->held[preamble->matched++] = data[at++];
  if (preamble->matched == PREAMBLE_SIZE) {
    if (has_token(preamble, TOKEN_DIGITS)) {
      *step = (struct preamble_step){PREAMBLE_MATCH, preamble->held, PREAMBLE_SIZE};
    } else {
      forward_held(preamble, step);
    }
    restart(preamble);
  } else if (at < length) {
    forward_held(preamble, step);
    restart(preamble);
  } else if (preamble->matched < HOLD_FROM) {
    forward_held(preamble, step);
  } else {
    forward(step, NULL, 0);
  }
  return at;
}

bool preamble_is_holding(const struct preamble *preamble) {
  return preamble->matched >= HOLD_FROM && preamble->matched > preamble->released;
}

void preamble_release(struct preamble *preamble, struct preamble_step *step) {
  size_t digits = preamble->matched > PREAMBLE_MAGIC ? preamble->matched - PREAMBLE_MAGIC : 0;
  if (digits > TOKEN_DIGITS) digits = TOKEN_DIGITS;
  /* So many right digits are no guess: this is the host, the rest is on its way, and it must not leak into a tunnel. */
  if (digits >= GUESSED_DIGITS && has_token(preamble, digits)) {
    forward(step, NULL, 0);
    return;
  }
  forward_held(preamble, step);
}
