#ifndef METRICS_H
#define METRICS_H

#include <stdint.h>

#include "request.h"

/* Processor time at the previous call, so that the next one can tell the share since. */
struct metrics {
  uint64_t busy;
  uint64_t all;
};

request_event_fn metrics_route;

#endif
