/*
 * LD_PRELOAD shim for clones: gives QEMU the snapshot's memory file read-only and mapped privately, although QEMU asks
 * for a writable, shared mapping (it leaves RAM out of its migration stream only for blocks that it believes shared).
 *
 * The file's real path is in SNAPGATE_MEMORY_FILE; QEMU is told SNAPGATE_MEMORY_NAME, a path below /dev/null which only
 * this shim can open. A VMM that runs without the shim therefore fails to start instead of writing into the template.
 * Since the descriptor is read-only, the kernel itself refuses ftruncate, fallocate (punching holes) and write.
 *
 * The shim also takes away core dumps (they would hold guest memory) and bounds every file the VMM may write to
 * SNAPGATE_FILE_BYTES, where given.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *name;
    const char *path;
    dev_t device;
    ino_t inode;
} memory;

static void fail(const char *what)
{
    dprintf(STDERR_FILENO, "snapgate map-private: %s: %s\n", what, strerror(errno));
    _exit(71);
}

static void limit_files(const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        errno = EINVAL;
        fail("SNAPGATE_FILE_BYTES");
    }
    struct rlimit file = {.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_FSIZE, &file) != 0)
        fail("limit file size");
    /* Past the limit a write shall fail with EFBIG, which the guest sees as an I/O error, rather than kill the VMM. */
    signal(SIGXFSZ, SIG_IGN);
}

__attribute__((constructor)) static void prepare(void)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0)
        fail("forbid core dumps");
    const char *bytes = getenv("SNAPGATE_FILE_BYTES");
    if (bytes != NULL)
        limit_files(bytes);
    memory.name = getenv("SNAPGATE_MEMORY_NAME");
    memory.path = getenv("SNAPGATE_MEMORY_FILE");
    if (memory.path == NULL)
        return;
    struct stat found;
    if (stat(memory.path, &found) != 0)
        fail(memory.path);
    if (!S_ISREG(found.st_mode)) {
        errno = EINVAL;
        fail(memory.path);
    }
    memory.device = found.st_dev;
    memory.inode = found.st_ino;
}

static bool is_memory(const struct stat *file)
{
    return memory.path != NULL && file->st_dev == memory.device && file->st_ino == memory.inode;
}

/* Whatever name the memory file goes by, it is opened for reading only. */
static const char *redirect(int directory, const char *path, int *flags)
{
    struct stat found;
    bool is_ours = memory.name != NULL && memory.path != NULL && strcmp(path, memory.name) == 0;
    if (is_ours)
        path = memory.path;
    else if (memory.path != NULL && (*flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY)
        is_ours = fstatat(directory, path, &found, 0) == 0 && is_memory(&found);
    if (is_ours)
        *flags = (*flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC)) | O_RDONLY;
    return path;
}

#define NEXT(name, type) \
    static type next;    \
    if (next == NULL)    \
    next = (type)(void *)dlsym(RTLD_NEXT, name)

typedef int (*open_function)(const char *, int, ...);
typedef int (*openat_function)(int, const char *, int, ...);
typedef void *(*mmap_function)(void *, size_t, int, int, int, off_t);

#define CREATION_MODE(flags, mode)                                             \
    mode_t mode = 0;                                                           \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) {          \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode = va_arg(rest, mode_t);                                           \
        va_end(rest);                                                          \
    }

#define DEFINE_OPEN(symbol)                                \
    int symbol(const char *path, int flags, ...)           \
    {                                                      \
        NEXT(#symbol, open_function);                      \
        CREATION_MODE(flags, mode)                         \
        path = redirect(AT_FDCWD, path, &flags);           \
        return next(path, flags, mode);                    \
    }

#define DEFINE_OPENAT(symbol)                                   \
    int symbol(int directory, const char *path, int flags, ...) \
    {                                                           \
        NEXT(#symbol, openat_function);                         \
        CREATION_MODE(flags, mode)                              \
        path = redirect(directory, path, &flags);               \
        return next(directory, path, flags, mode);              \
    }

/* What glibc's fortified headers make of open() when the flags are not known at compile time. */
#define DEFINE_OPEN_2(symbol, plain)             \
    int symbol(const char *path, int flags);     \
    int symbol(const char *path, int flags)      \
    {                                            \
        return plain(path, flags);               \
    }

#define DEFINE_OPENAT_2(symbol, plain)                      \
    int symbol(int directory, const char *path, int flags); \
    int symbol(int directory, const char *path, int flags)  \
    {                                                       \
        return plain(directory, path, flags);               \
    }

#define DEFINE_MMAP(symbol)                                                                      \
    void *symbol(void *address, size_t length, int protection, int flags, int file, off_t start) \
    {                                                                                            \
        NEXT(#symbol, mmap_function);                                                            \
        struct stat found;                                                                       \
        int kind = flags & MAP_TYPE;                                                             \
        if (file >= 0 && (kind == MAP_SHARED || kind == MAP_SHARED_VALIDATE) &&                  \
            fstat(file, &found) == 0 && is_memory(&found))                                       \
            flags = (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE | MAP_NORESERVE;              \
        return next(address, length, protection, flags, file, start);                            \
    }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)
DEFINE_OPEN_2(__open_2, open)
DEFINE_OPEN_2(__open64_2, open64)
DEFINE_OPENAT_2(__openat_2, openat)
DEFINE_OPENAT_2(__openat64_2, openat64)
DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)
