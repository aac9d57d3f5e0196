/* What makes one clone differ from another, and what the host learns about this machine. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "request.h"

request_event_fn identity_ping, identity_resume, identity_sync;

#endif
