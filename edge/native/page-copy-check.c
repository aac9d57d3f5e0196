/*
 * A process with a private mapping for the page copier's tests. Maps FILE privately, writes the byte VALUE at the start of
 * each PAGE named, prints the mapping's address in decimal, and ends when its input does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    int file = open(arguments[1], O_RDONLY);
    struct stat found;
    if (file < 0 || fstat(file, &found) != 0)
        return 2;
    char *memory = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
        return 2;
    /* Pages that are only read are not private. */
    volatile char seen = 0;
    for (off_t at = 0; at < found.st_size; at += 3 * 4096)
        seen = (char)(seen + memory[at]);
    for (int index = 3; index < count; index++)
        memory[strtoul(arguments[index], NULL, 10) * 4096] = (char)atoi(arguments[2]);
    printf("%lu\n", (unsigned long)memory);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
