#ifndef TUNNEL_H
#define TUNNEL_H

#include "request.h"

/* CONNECT: bytes both ways between the stream and a TCP port of this machine. */
void tunnel_open(struct request *request);

#endif
