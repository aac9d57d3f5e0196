/*
 * Behaves like QEMU with its memory file, under the shim: opens it for writing by every entry point, maps it shared,
 * writes, truncates, punches. Prints what went wrong and fails; the test compares the file afterwards.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int __open64_2(const char *path, int flags);

static int faults;

static void expect(int is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "not so: %s (%s)\n", what, strerror(errno));
    faults++;
}

static void use(int file, const char *way)
{
    fprintf(stderr, "%s\n", way);
    expect(file >= 0, "the memory file opens");
    expect((fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY, "it is open for reading only");
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    expect(memory != MAP_FAILED, "a writable, shared mapping is granted");
    if (memory != MAP_FAILED) {
        expect(memory[0] == 'm', "the mapping shows the file");
        memset(memory, 'X', 8192);
        expect(memory[0] == 'X' && memory[8191] == 'X', "the mapping takes writes");
        expect(msync(memory, 8192, MS_SYNC) == 0, "msync does no harm");
        expect(madvise(memory, 4096, MADV_REMOVE) != 0, "no hole can be punched through the mapping");
        munmap(memory, 8192);
    }
    expect(ftruncate(file, 0) != 0, "it can't be truncated");
    expect(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0, "it can't be punched");
    expect(pwrite(file, "X", 1, 0) < 0, "it can't be written");
    close(file);
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    const char *real = "/proc/self/fd/3", *name = getenv("SNAPGATE_MEMORY_NAME");
    const char *link = arguments[1], *other = arguments[2];
    use(open(name, O_RDWR), "open by name");
    use(open64(name, O_RDWR | O_CLOEXEC), "open64 by name");
    use(openat(AT_FDCWD, name, O_RDWR), "openat by name");
    use(openat64(AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, 0600), "openat64 by name, truncating");
    use(__open64_2(name, O_RDWR), "__open64_2 by name");
    use(open(real, O_RDWR | O_TRUNC), "open by its descriptor's path, truncating");
    use(open64(link, O_RDWR), "open64 by another link");
    use(open(real, O_RDONLY | O_TRUNC), "open for reading, truncating");

    struct stat expected, found;
    int device = open64("/dev/kvm", O_RDWR | O_CLOEXEC);
    expect(fstat(3, &expected) == 0 && fstat(device, &found) == 0 && expected.st_ino == found.st_ino,
           "/dev/kvm is the descriptor that was inherited for it");

    int file = open(other, O_RDWR | O_CREAT, 0600);
    expect(file >= 0 && (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDWR, "another file opens for writing");
    expect(ftruncate(file, 4096) == 0, "another file can grow");
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    expect(memory != MAP_FAILED, "another file maps");
    if (memory != MAP_FAILED)
        memory[0] = 'o';
    char first = 0;
    expect(pread(file, &first, 1, 0) == 1 && first == 'o', "another file is really shared");
    expect(pwrite(file, "X", 1, 1 << 20) < 0 && errno == EFBIG, "files end at SNAPGATE_FILE_BYTES, without a signal");

    expect(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "there are no new privileges");
    struct rlimit core;
    expect(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0, "core dumps are off");
    return faults == 0 ? 0 : 1;
}
