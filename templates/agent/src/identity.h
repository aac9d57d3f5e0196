/* What makes one clone differ from another, and what the host learns about this machine. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "request.h"

/* Once, as init, with the root in place. Null, or what could not be prepared, with errno. */
const char *identity_prepare(void);

request_event_fn identity_ping, identity_resume, identity_sync;

#endif
