#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void agent_log(const char *format, ...) {
  char line[512] = "snapgate-agent: ";
  size_t at = 16, room = sizeof line - at - 1;
  va_list list;
  va_start(list, format);
  int wanted = vsnprintf(line + at, room, format, list);
  va_end(list);
  size_t end = at + (wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1);
  for (; at < end; at++)
    if ((unsigned char)line[at] < 0x20 || line[at] == 0x7f) line[at] = '?';
  line[end++] = '\n';
  if (write(STDERR_FILENO, line, end) < 0) return;
}
