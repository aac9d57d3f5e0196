/* Finds `SNAPGATE-HELLO/2 <token> <nonce> <clock> <entropy>\n\n\n\n\n\n` anywhere in the input (PROTOCOL.md, Preamble). */
#ifndef PREAMBLE_H
#define PREAMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PREAMBLE_MAGIC = 17,
  TOKEN_DIGITS = 64,
  NONCE_DIGITS = 32,
  CLOCK_DIGITS = 16,
  ENTROPY_DIGITS = 128,
  PREAMBLE_BREAKS = 6,
  /* Where the fields begin; each but the last is followed by a space. */
  NONCE_AT = PREAMBLE_MAGIC + TOKEN_DIGITS + 1,
  CLOCK_AT = NONCE_AT + NONCE_DIGITS + 1,
  ENTROPY_AT = CLOCK_AT + CLOCK_DIGITS + 1,
  BREAKS_AT = ENTROPY_AT + ENTROPY_DIGITS,
  PREAMBLE_SIZE = BREAKS_AT + PREAMBLE_BREAKS,
  /* How long bytes that look like the start of a preamble are kept from the session. */
  PREAMBLE_HOLD_MS = 10,
};

struct preamble {
  char token[TOKEN_DIGITS];
  /* Bytes of the candidate, of which `released` were already passed on. */
  uint8_t held[PREAMBLE_SIZE];
  size_t matched;
  size_t released;
};

enum preamble_event { PREAMBLE_NOTHING, PREAMBLE_FORWARD, PREAMBLE_MATCH };
struct preamble_step {
  enum preamble_event event;
  /* FORWARD: bytes for the session, valid until the next call. MATCH: the whole preamble. */
  const uint8_t *bytes;
  size_t length;
};

/* Looks at input and returns how much of it was used up; call again with the rest until all is. */
size_t preamble_scan(struct preamble *preamble, const uint8_t *data, size_t length, struct preamble_step *step);
/* Whether bytes are kept back, so that `preamble_release` must be called after PREAMBLE_HOLD_MS. */
bool preamble_is_holding(const struct preamble *preamble);
/* Passes on what was kept back; the candidate may still become a match. */
void preamble_release(struct preamble *preamble, struct preamble_step *step);
bool is_hex(const char *text, size_t length);

#endif
