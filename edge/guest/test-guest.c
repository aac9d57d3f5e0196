/* The only program in the root file system of the agent's own guest test: one misdeed or probe per run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int echo(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int server = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(server, (struct sockaddr *)&address, sizeof address) < 0 || listen(server, 16) < 0) return 1;
  puts("listening");
  fflush(stdout);
  for (int client; (client = accept(server, NULL, NULL)) >= 0;) {
    if (fork() > 0) {
      close(client);
      continue;
    }
    char buffer[16384];
    for (ssize_t size; (size = read(client, buffer, sizeof buffer)) > 0;)
      if (write(client, buffer, (size_t)size) != size) _exit(1);
    _exit(0);
  }
  return 1;
}

static _Noreturn void eat(void) {
  for (;;) {
    char *piece = malloc(1 << 20);
    if (piece) memset(piece, 1, 1 << 20);
  }
}

static _Noreturn void bomb(void) {
  for (;;)
    if (fork() < 0) sched_yield();
}

/* Leaves session and parent behind, as a daemon does, and says who it is. */
static _Noreturn void escape(void) {
  if (fork() > 0)
    for (;;) pause();
  setsid();
  if (fork() > 0) _exit(0);
  printf("%d\n", (int)getpid());
  fflush(stdout);
  for (;;) pause();
}

static int draw(void) {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return 1;
  for (size_t i = 0; i < sizeof bytes; i++) printf("%02x", bytes[i]);
  return 0;
}

static const char *verdict(const char *path) {
  int fd = open(path, O_RDONLY);
  if (fd < 0) return strerrorname_np(errno);
  close(fd);
  return "open";
}

static int look(void) {
  char name[65] = "";
  gethostname(name, sizeof name - 1);
  printf("%d %s %lld %s %s\n", (int)getuid(), name, (long long)time(NULL), verdict("/proc/cmdline"),
         verdict("/proc/1/environ"));
  return 0;
}

int main(int count, char **values) {
  const char *deed = count > 1 ? values[1] : "";
  if (strcmp(deed, "echo") == 0) return echo(atoi(values[2]));
  if (strcmp(deed, "eat") == 0) eat();
  if (strcmp(deed, "bomb") == 0) bomb();
  if (strcmp(deed, "escape") == 0) escape();
  if (strcmp(deed, "draw") == 0) return draw();
  return look();
}
