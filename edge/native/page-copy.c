/*
 * Copies the pages that a stopped VMM has dirtied out of its private mapping, and puts them into another VMM.
 *
 * A server on standard input and output, so that no process is started while a guest stands still. One request a line,
 * fields parted by single spaces, numbers decimal, the path last and to the end of the line:
 *
 *   capture PID START BYTES PATH   scans [START, START+BYTES) of the process and writes a delta to PATH (must not exist).
 *                                  Answers "copied RUNS PAGES SCAN_US COPY_US" once the process may run again, then "ok".
 *   apply PID START BYTES PATH     writes the delta at PATH into the process. Answers "ok".
 *
 * Any request may be answered by "error TEXT". The server ends when its input does.
 *
 * A delta, little-endian, version 1: "SGDELTA1", u32 version, u32 page size, u64 bytes of memory, u64 runs, u64 pages,
 * 24 zero bytes; then a {u64 first page, u64 pages} for each run, ascending, neither touching nor overlapping, each not
 * empty; zeroes up to a page boundary; then the pages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { page_bytes = 4096, header_bytes = 64, chunk_bytes = 1 << 20, max_parts = 512 };
static const char magic[8] = "SGDELTA1";
/* Up to here a copy is kept in memory until the process may run again; larger ones are written as they are read. */
static const uint64_t max_held_bytes = 64u << 20;

struct header {
    char magic[8];
    uint32_t version, page_bytes;
    uint64_t memory_bytes, runs, pages;
    uint8_t reserved[24];
};
_Static_assert(sizeof(struct header) == header_bytes, "the header has no padding");

struct run {
    uint64_t first, count;
};

static struct {
    struct run *items;
    size_t count, room;
    uint64_t pages;
} runs;

/* The kernel's interface since 6.7; Debian 12's headers are older. */
struct page_region {
    uint64_t start, end, categories;
};
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_PAGES _IOWR('f', 16, struct pm_scan_arg)
enum { is_file = 1 << 2, is_present = 1 << 3, is_swapped = 1 << 4 };

struct request {
    pid_t pid;
    uint64_t start, bytes;
    const char *path;
};

static bool complain(const char *what)
{
    printf("error %s: %s\n", what, strerror(errno));
    return false;
}

static bool refuse(const char *what)
{
    printf("error %s\n", what);
    return false;
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static bool add_run(uint64_t first, uint64_t count)
{
    runs.pages += count;
    if (runs.count > 0) {
        struct run *last = &runs.items[runs.count - 1];
        if (last->first + last->count == first) {
            last->count += count;
            return true;
        }
    }
    if (runs.count == runs.room) {
        size_t room = runs.room == 0 ? 1024 : runs.room * 2;
        struct run *items = realloc(runs.items, room * sizeof *items);
        if (items == NULL)
            return complain("allocate");
        runs.items = items;
        runs.room = room;
    }
    runs.items[runs.count++] = (struct run){first, count};
    return true;
}

/*
 * The whole scan in the kernel. Sets *is_known to false when the kernel has no such call. `walk_end` can lag behind what was
 * answered (Linux 6.18 leaves the one of an inner batch), so the last region's end counts as well, and a call that did not
 * fill the table was the last.
 */
static bool scan_by_ioctl(int pagemap, const struct request *request, bool *is_known)
{
    static struct page_region regions[1024];
    uint64_t end = request->start + request->bytes;
    struct pm_scan_arg scan = {
        .size = sizeof scan,
        .start = request->start,
        .end = end,
        .vec = (uint64_t)(uintptr_t)regions,
        .vec_len = sizeof regions / sizeof *regions,
        .category_inverted = is_file,
        .category_mask = is_file,
        .category_anyof_mask = is_present | is_swapped,
        .return_mask = is_file,
    };
    while (scan.start < end) {
        long found = ioctl(pagemap, SCAN_PAGES, &scan);
        if (found < 0) {
            *is_known = errno != ENOTTY && errno != EINVAL;
            return *is_known ? complain("scan") : true;
        }
        for (long index = 0; index < found; index++) {
            const struct page_region *region = &regions[index];
            if (!add_run((region->start - request->start) / page_bytes, (region->end - region->start) / page_bytes))
                return false;
        }
        if ((uint64_t)found < scan.vec_len)
            break;
        uint64_t reached = regions[found - 1].end > scan.walk_end ? regions[found - 1].end : scan.walk_end;
        if (reached <= scan.start)
            return refuse("the scan does not go on");
        scan.start = reached;
    }
    return true;
}

/* Page by page: private is what is present and not of the file (bits 63 and 61), or swapped (bit 62). */
static bool scan_by_reading(int pagemap, const struct request *request)
{
    static uint64_t entries[8192];
    uint64_t pages = request->bytes / page_bytes;
    for (uint64_t page = 0; page < pages;) {
        size_t wanted = pages - page < 8192 ? (size_t)(pages - page) : 8192;
        ssize_t got = pread(pagemap, entries, wanted * 8, (off_t)((request->start / page_bytes + page) * 8));
        if (got <= 0)
            return complain("read the page map");
        for (size_t index = 0; index < (size_t)got / 8; index++, page++) {
            uint64_t entry = entries[index];
            bool is_private = (entry >> 63 & 1) != 0 && (entry >> 61 & 1) == 0;
            if ((is_private || (entry >> 62 & 1) != 0) && !add_run(page, 1))
                return false;
        }
    }
    return true;
}

static bool scan(const struct request *request)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/pagemap", request->pid);
    int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    if (pagemap < 0)
        return complain(path);
    bool is_known = getenv("PAGE_COPY_BY_READING") == NULL;
    bool is_done = is_known ? scan_by_ioctl(pagemap, request, &is_known) : true;
    if (is_done && !is_known)
        is_done = scan_by_reading(pagemap, request);
    close(pagemap);
    return is_done;
}

static bool write_all(int file, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t written = write(file, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return complain("write the delta");
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool write_index(int file, uint64_t memory_bytes)
{
    static const char zeroes[page_bytes];
    struct header header = {.version = 1,
                            .page_bytes = page_bytes,
                            .memory_bytes = memory_bytes,
                            .runs = runs.count,
                            .pages = runs.pages};
    memcpy(header.magic, magic, sizeof magic);
    size_t index = runs.count * sizeof(struct run);
    size_t padding = (page_bytes - (header_bytes + index) % page_bytes) % page_bytes;
    return write_all(file, &header, sizeof header) && (index == 0 || write_all(file, runs.items, index)) &&
           write_all(file, zeroes, padding);
}

/* A place in the runs; `page` counts from the start of the run. */
struct cursor {
    size_t run;
    uint64_t page;
};

/* Reads the next pages into the buffer; answers how many bytes, 0 when the call failed. */
static size_t read_pages(const struct request *request, struct cursor *cursor, char *buffer, size_t bytes)
{
    struct iovec remote[max_parts];
    size_t parts = 0, total = 0;
    while (parts < max_parts && cursor->run < runs.count && total < bytes) {
        const struct run *run = &runs.items[cursor->run];
        uint64_t pages = run->count - cursor->page;
        if (pages > (bytes - total) / page_bytes)
            pages = (bytes - total) / page_bytes;
        uint64_t address = request->start + (run->first + cursor->page) * page_bytes;
        remote[parts++] = (struct iovec){(void *)(uintptr_t)address, (size_t)pages * page_bytes};
        total += (size_t)pages * page_bytes;
        cursor->page += pages;
        if (cursor->page == run->count)
            *cursor = (struct cursor){cursor->run + 1, 0};
    }
    struct iovec local = {buffer, total};
    ssize_t got = process_vm_readv(request->pid, &local, 1, remote, parts, 0);
    if (got >= 0 && (size_t)got != total)
        errno = EFAULT;
    return got >= 0 && (size_t)got == total ? total : 0;
}

static bool copy(const struct request *request, int file, uint64_t started)
{
    uint64_t total = runs.pages * page_bytes, done = 0, scanned = now_us();
    size_t room = total > max_held_bytes ? chunk_bytes : (size_t)total;
    char *buffer = malloc(room > 0 ? room : 1);
    if (buffer == NULL)
        return complain("allocate");
    struct cursor cursor = {0, 0};
    size_t held = 0;
    bool is_well = total <= max_held_bytes || write_index(file, request->bytes);
    while (is_well && done < total) {
        size_t got = read_pages(request, &cursor, buffer + held, room - held);
        is_well = got > 0 || complain("read memory");
        done += got;
        if (total <= max_held_bytes)
            held += got;
        else
            is_well = is_well && write_all(file, buffer, got);
    }
    if (is_well) {
        printf("copied %zu %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", runs.count, runs.pages, scanned - started,
               now_us() - scanned);
        fflush(stdout);
        if (total <= max_held_bytes)
            is_well = write_index(file, request->bytes) && write_all(file, buffer, held);
    }
    free(buffer);
    return is_well;
}

static bool capture(const struct request *request)
{
    uint64_t started = now_us();
    runs.count = 0;
    runs.pages = 0;
    int file = open(request->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return complain("create the delta");
    bool is_well = scan(request) && copy(request, file, started);
    if (close(file) != 0 && is_well)
        is_well = complain("close the delta");
    if (!is_well)
        unlink(request->path);
    return is_well;
}

static bool read_at(int file, void *data, size_t bytes, uint64_t offset)
{
    for (char *at = data; bytes > 0;) {
        ssize_t got = pread(file, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return complain("read the delta");
        if (got == 0)
            return refuse("the delta is cut short");
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Reads the index and checks every run of it; answers where the pages begin through *data. */
static bool read_index(int file, uint64_t memory_bytes, uint64_t *data)
{
    struct header header;
    struct stat found;
    if (fstat(file, &found) != 0)
        return complain("read the delta");
    if (!read_at(file, &header, sizeof header, 0))
        return false;
    uint64_t pages = memory_bytes / page_bytes;
    if (memcmp(header.magic, magic, sizeof magic) != 0 || header.version != 1 || header.page_bytes != page_bytes)
        return refuse("this is not a delta of version 1");
    if (header.memory_bytes != memory_bytes || header.pages > pages || header.runs > header.pages)
        return refuse("the delta is of another memory");
    *data = (header_bytes + header.runs * sizeof(struct run) + page_bytes - 1) / page_bytes * page_bytes;
    if ((uint64_t)found.st_size != *data + header.pages * page_bytes)
        return refuse("the delta has a wrong length");
    uint64_t next = 0;
    for (uint64_t index = 0; index < header.runs; index++) {
        struct run run;
        if (!read_at(file, &run, sizeof run, header_bytes + index * sizeof run))
            return false;
        if (run.count == 0 || (index > 0 && run.first <= next) || run.first >= pages || run.count > pages - run.first)
            return refuse("the delta has a run out of order");
        next = run.first + run.count;
        if (!add_run(run.first, run.count))
            return false;
    }
    return runs.pages == header.pages || refuse("the delta's index does not add up");
}

static bool put_pages(const struct request *request, int file, int memory, uint64_t offset)
{
    static char buffer[chunk_bytes];
    uint64_t end = offset + runs.pages * page_bytes, held_end = offset;
    size_t held_at = 0;
    for (size_t index = 0; index < runs.count; index++) {
        uint64_t address = request->start + runs.items[index].first * page_bytes;
        for (uint64_t left = runs.items[index].count * page_bytes; left > 0;) {
            if (offset == held_end) {
                size_t bytes = end - offset < chunk_bytes ? (size_t)(end - offset) : chunk_bytes;
                if (!read_at(file, buffer, bytes, offset))
                    return false;
                held_at = 0;
                held_end = offset + bytes;
            }
            size_t bytes = held_end - offset < left ? (size_t)(held_end - offset) : (size_t)left;
            ssize_t put = pwrite(memory, buffer + held_at, bytes, (off_t)address);
            if (put <= 0)
                return complain("write memory");
            held_at += (size_t)put;
            offset += (uint64_t)put;
            address += (uint64_t)put;
            left -= (uint64_t)put;
        }
    }
    return true;
}

static bool apply(const struct request *request)
{
    char path[64];
    uint64_t data = 0;
    runs.count = 0;
    runs.pages = 0;
    int file = open(request->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return complain("open the delta");
    snprintf(path, sizeof path, "/proc/%d/mem", request->pid);
    int memory = open(path, O_WRONLY | O_CLOEXEC);
    bool is_well = memory >= 0 || complain(path);
    is_well = is_well && read_index(file, request->bytes, &data) && put_pages(request, file, memory, data);
    if (memory >= 0)
        close(memory);
    close(file);
    return is_well;
}

static bool answer(char *line)
{
    struct request request = {0};
    char verb[8];
    int path_at = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%7s %d %" SCNu64 " %" SCNu64 " %n", verb, &request.pid, &request.start, &request.bytes, &path_at) !=
            4 ||
        path_at == 0 || line[path_at] != '/' || request.pid <= 0 || request.start % page_bytes != 0 ||
        request.bytes % page_bytes != 0 || request.bytes == 0 || request.bytes > (uint64_t)1 << 46)
        return refuse("malformed request");
    request.path = line + path_at;
    if (strcmp(verb, "capture") == 0)
        return capture(&request);
    if (strcmp(verb, "apply") == 0)
        return apply(&request);
    return refuse("unknown request");
}

int main(void)
{
    static char line[8192];
    prctl(PR_SET_NAME, "page-copy");
    /* A file limit is to be an error like any other. */
    signal(SIGXFSZ, SIG_IGN);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (answer(line))
            puts("ok");
        if (fflush(stdout) != 0)
            return 1;
    }
    return 0;
}
