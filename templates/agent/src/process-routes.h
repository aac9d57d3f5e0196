#ifndef PROCESS_ROUTES_H
#define PROCESS_ROUTES_H

#include "request.h"

request_event_fn process_route_start, process_route_list, process_route_status, process_route_delete,
  process_route_wait, process_route_output, process_route_stdin, process_route_signal, process_route_resize;

#endif
