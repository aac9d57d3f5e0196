/*
 * LD_PRELOAD shim of every VMM. QEMU gets its memory file as a descriptor inherited from the edge (SNAPGATE_MEMORY_FD), so
 * it needs no right to reach or open it, and is told a path below /dev/null (SNAPGATE_MEMORY_NAME) that only this shim can
 * open: a VMM that runs without the shim fails to start.
 *
 * Where the descriptor is read-only (clones), the file is mapped privately although QEMU asks for a shared mapping: QEMU
 * leaves RAM out of its migration stream only for blocks that it believes shared. The kernel itself then refuses
 * ftruncate, fallocate (punching holes) and write. Where it is writable (a template's own boot), nothing is changed.
 *
 * /dev/kvm may be inherited in the same way (SNAPGATE_KVM_FD).
 *
 * The shim also takes away core dumps (they would hold guest memory) and new privileges, and bounds every file that the
 * VMM may write to SNAPGATE_FILE_BYTES, where given.
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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *name;
    int file;
    bool is_private;
    dev_t device;
    ino_t inode;
} memory = {.file = -1};

static int kvm_file = -1;

static void fail(const char *what)
{
    dprintf(STDERR_FILENO, "snapgate map-private: %s: %s\n", what, strerror(errno));
    _exit(71);
}

/* The number in an environment variable, which must be there. */
static unsigned long long number(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    errno = 0;
    unsigned long long value = text == NULL ? 0 : strtoull(text, &end, 10);
    if (text == NULL || errno != 0 || end == text || *end != '\0') {
        errno = EINVAL;
        fail(variable);
    }
    return value;
}

static void limit_files(unsigned long long bytes)
{
    struct rlimit file = {.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_FSIZE, &file) != 0)
        fail("limit file size");
    /* Past the limit a write shall fail with EFBIG, which the guest sees as an I/O error, rather than kill the VMM. */
    signal(SIGXFSZ, SIG_IGN);
}

__attribute__((constructor)) static void prepare(void)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail("give up privileges");
    if (getenv("SNAPGATE_FILE_BYTES") != NULL)
        limit_files(number("SNAPGATE_FILE_BYTES"));
    if (getenv("SNAPGATE_KVM_FD") != NULL)
        kvm_file = (int)number("SNAPGATE_KVM_FD");
    memory.name = getenv("SNAPGATE_MEMORY_NAME");
    if (memory.name == NULL)
        return;
    memory.file = (int)number("SNAPGATE_MEMORY_FD");
    struct stat found;
    int flags = fcntl(memory.file, F_GETFL);
    if (flags < 0 || fstat(memory.file, &found) != 0)
        fail("the memory file");
    if (!S_ISREG(found.st_mode)) {
        errno = EINVAL;
        fail("the memory file");
    }
    memory.is_private = (flags & O_ACCMODE) == O_RDONLY;
    memory.device = found.st_dev;
    memory.inode = found.st_ino;
}

/* True for the file that must stay as it is. */
static bool is_template(const struct stat *file)
{
    return memory.is_private && file->st_dev == memory.device && file->st_ino == memory.inode;
}

/* The inherited descriptor that a path stands for; -1 for all other paths. */
static int inherited(const char *path)
{
    if (memory.name != NULL && strcmp(path, memory.name) == 0)
        return memory.file;
    if (kvm_file >= 0 && strcmp(path, "/dev/kvm") == 0)
        return kvm_file;
    return -1;
}

/* By whatever name a template's file may be reached, it is opened for reading only. */
static int allowed_flags(int directory, const char *path, int flags)
{
    struct stat found;
    if (!memory.is_private || ((flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0))
        return flags;
    if (fstatat(directory, path, &found, 0) != 0 || !is_template(&found))
        return flags;
    return (flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC)) | O_RDONLY;
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
        int file = inherited(path);                        \
        if (file >= 0)                                     \
            return fcntl(file, F_DUPFD_CLOEXEC, 3);        \
        flags = allowed_flags(AT_FDCWD, path, flags);      \
        return next(path, flags, mode);                    \
    }

#define DEFINE_OPENAT(symbol)                                   \
    int symbol(int directory, const char *path, int flags, ...) \
    {                                                           \
        NEXT(#symbol, openat_function);                         \
        CREATION_MODE(flags, mode)                              \
        int file = inherited(path);                             \
        if (file >= 0)                                          \
            return fcntl(file, F_DUPFD_CLOEXEC, 3);             \
        flags = allowed_flags(directory, path, flags);          \
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
            fstat(file, &found) == 0 && is_template(&found))                                     \
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
