/* What makes one clone differ from another, and what the host learns about this machine. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "request.h"

/* Once, as init, with the root in place. Null, or what could not be prepared, with errno. */
const char *identity_prepare(void);

/*
 * Steps the clock and adds entropy as a preamble asks for it, unless its clock is zero. `clock` and `entropy` are the hex
 * digits of its fields. Returns the wall clock afterwards in ms; 0 when a step failed.
 */
long long identity_greeted(struct agent *agent, const char *clock, const char *entropy);

request_event_fn identity_ping, identity_resume, identity_sync;

#endif
