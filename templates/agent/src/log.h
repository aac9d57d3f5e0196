#ifndef LOG_H
#define LOG_H

/* One line `snapgate-agent: …` on stderr, which is the console in a guest. Control characters are replaced. */
void agent_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
