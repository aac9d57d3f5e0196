#ifndef ROUTER_H
#define ROUTER_H

#include "request.h"

/* Finds the route of a request whose headers are complete and runs it, at once or when its body is there. */
void router_begin(struct request *request);

#endif
