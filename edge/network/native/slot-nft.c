/*
 * Runs nftables commands inside named network namespaces, in one process that stays: starting `nft` for each of them took
 * 33 ms on a busy host, this takes about one.
 *
 * In:  `ID NETNS FLAGS LENGTH\n` and LENGTH bytes of commands. ID is decimal; FLAGS are `j` (answer in JSON, protocols as numbers)
 *      or `-`.
 * Out: `ID STATUS LENGTH\n` and LENGTH bytes: what nft printed, or its error when STATUS is not 0.
 * Ends with its input.
 *
 * The library is loaded at run time, by the interface that its soname fixes: a host has it with the `nft` program, but seldom
 * its headers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { commands_max = 8 << 20, json = 1 << 4, numeric_protocols = 1 << 7 };

struct nft_ctx;
static struct {
    struct nft_ctx *(*new)(unsigned flags);
    void (*free)(struct nft_ctx *context);
    int (*run)(struct nft_ctx *context, const char *commands);
    int (*buffer_output)(struct nft_ctx *context);
    int (*buffer_error)(struct nft_ctx *context);
    const char *(*output)(struct nft_ctx *context);
    const char *(*error)(struct nft_ctx *context);
    void (*set_flags)(struct nft_ctx *context, unsigned flags);
} nft;

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "slot-nft: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static void load(void)
{
    void *library = dlopen("libnftables.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "slot-nft: %s\n", dlerror());
        exit(1);
    }
    *(void **)&nft.new = find(library, "nft_ctx_new");
    *(void **)&nft.free = find(library, "nft_ctx_free");
    *(void **)&nft.run = find(library, "nft_run_cmd_from_buffer");
    *(void **)&nft.buffer_output = find(library, "nft_ctx_buffer_output");
    *(void **)&nft.buffer_error = find(library, "nft_ctx_buffer_error");
    *(void **)&nft.output = find(library, "nft_ctx_get_output_buffer");
    *(void **)&nft.error = find(library, "nft_ctx_get_error_buffer");
    *(void **)&nft.set_flags = find(library, "nft_ctx_output_set_flags");
}

static int enter_namespace(const char *name)
{
    char path[96];
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name)) {
        errno = EINVAL;
        return -1;
    }
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = setns(fd, CLONE_NEWNET);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

/* A namespace lives for as long as a process is in it, so none is stayed in. */
static int home = -1;

static void leave_namespace(void)
{
    if (setns(home, CLONE_NEWNET) < 0) {
        perror("slot-nft: leave a namespace");
        exit(1);
    }
}

static void answer(unsigned id, int status, const char *text)
{
    size_t length = text == NULL ? 0 : strlen(text);
    printf("%u %d %zu\n", id, status, length);
    if (length > 0)
        fwrite(text, 1, length, stdout);
    fflush(stdout);
}

static void serve(unsigned id, const char *netns, bool is_json, const char *commands)
{
    if (enter_namespace(netns) < 0) {
        answer(id, 1, strerror(errno));
        return;
    }
    /* Its socket belongs to the namespace it is made in, so each request has a context of its own. */
    struct nft_ctx *context = nft.new(0);
    if (context == NULL || nft.buffer_output(context) != 0 || nft.buffer_error(context) != 0) {
        answer(id, 1, "out of memory");
    } else {
        if (is_json)
            nft.set_flags(context, json | numeric_protocols);
        int status = nft.run(context, commands);
        answer(id, status == 0 ? 0 : 1, status == 0 ? nft.output(context) : nft.error(context));
    }
    if (context != NULL)
        nft.free(context);
    leave_namespace();
}

int main(void)
{
    char line[160], netns[65], flags[8];
    unsigned id;
    size_t length;
    load();
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "%9u %64s %7s %zu", &id, netns, flags, &length) != 4 || length > commands_max) {
            fprintf(stderr, "slot-nft: malformed request\n");
            return 1;
        }
        char *commands = malloc(length + 1);
        if (commands == NULL || fread(commands, 1, length, stdin) != length)
            return 1;
        commands[length] = '\0';
        serve(id, netns, flags[0] == 'j', commands);
        free(commands);
    }
    return 0;
}
