/*
 * The whole userland of the driver's test guest. Each tick: a count kept in memory, a page-sized write to each page of a
 * buffer, the count appended to a file on the scratch disk (not synced), a line on the console which ends in the size of
 * that file. As `test-guest flood` it prints to the console without end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile char pages[512][4096];

static int flood(int console)
{
    static char line[4096];
    memset(line, 'f', sizeof line);
    line[sizeof line - 1] = '\n';
    for (;;)
        if (write(console, line, sizeof line) < 0)
            return 1;
}

int main(int count, char **arguments)
{
    int console = open("/dev/ttyS0", O_WRONLY | O_NOCTTY);
    if (console < 0)
        return 1;
    if (count > 1 && strcmp(arguments[1], "flood") == 0)
        return flood(console);
    int file = open("/ticks", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int tick = 1;; tick++) {
        for (unsigned page = 0; page < sizeof pages / sizeof *pages; page++)
            pages[page][0] = (char)tick;
        struct stat found;
        if (write(file, "t", 1) != 1 || fstat(file, &found) != 0)
            return 1;
        dprintf(console, "COUNT %d FILE %ld\n", tick, (long)found.st_size);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
}
