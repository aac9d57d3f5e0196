/*
 * Prints where a sparse file has data: one line "OFFSET LENGTH" an extent, in order. Node has no lseek, and reading the
 * holes of a memory image would fill the page cache with zeroes. Exit status 2: the file can't be read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int complain(const char *path)
{
    fprintf(stderr, "data-extents: %s: %s\n", path, strerror(errno));
    return 2;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: data-extents FILE\n");
        return 2;
    }
    int file = open(arguments[1], O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return complain(arguments[1]);
    off_t hole = 0;
    for (;;) {
        off_t data = lseek(file, hole, SEEK_DATA);
        if (data < 0) {
            /* ENXIO: nothing but a hole up to the end. */
            if (errno == ENXIO)
                break;
            return complain(arguments[1]);
        }
        hole = lseek(file, data, SEEK_HOLE);
        if (hole < 0)
            return complain(arguments[1]);
        printf("%lld %lld\n", (long long)data, (long long)(hole - data));
    }
    if (fflush(stdout) != 0)
        return complain("standard output");
    return 0;
}
