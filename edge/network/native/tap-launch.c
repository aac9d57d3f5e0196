/*
 * Starts a VMM with the tap of a slot: `tap-launch NETNS TAP FD UID GID PROGRAM ARGUMENT...`
 *
 * Opens TAP in the network namespace NETNS as descriptor FD, leaves for a fresh namespace that holds nothing at all, gives up
 * root for UID and GID, and becomes PROGRAM. So the VMM gets one descriptor on which frames go in and out of its slot, and can
 * neither reach the slot's own sockets and uplink nor the host's network. The process stays the same: who started it knows it.
 *
 * Linked statically: it is started with the VMM's environment, and the VMM's preloaded library is not meant for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void fail(const char *what)
{
    dprintf(STDERR_FILENO, "snapgate tap-launch: %s: %s\n", what, strerror(errno));
    _exit(71);
}

static unsigned long number(const char *text, unsigned long most)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value > most) {
        errno = EINVAL;
        fail(text);
    }
    return value;
}

static void enter_namespace(const char *name)
{
    char path[96];
    if (name[0] == '\0' || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) || strlen(name) > 64) {
        errno = EINVAL;
        fail("namespace");
    }
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        fail(path);
    close(fd);
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    if (name[0] == '\0' || strlen(name) >= sizeof request.ifr_name) {
        errno = EINVAL;
        fail("tap");
    }
    memcpy(request.ifr_name, name, strlen(name));
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fail("/dev/net/tun");
    if (ioctl(fd, TUNSETIFF, &request) < 0)
        fail("open the tap");
    return fd;
}

int main(int count, char **values)
{
    if (count < 7) {
        dprintf(STDERR_FILENO, "usage: tap-launch NETNS TAP FD UID GID PROGRAM ARGUMENT...\n");
        return 2;
    }
    int wanted = (int)number(values[3], 255);
    uid_t uid = (uid_t)number(values[4], 0x7fffffff);
    gid_t gid = (gid_t)number(values[5], 0x7fffffff);
    enter_namespace(values[1]);
    int tap = open_tap(values[2]);
    if (unshare(CLONE_NEWNET) < 0)
        fail("leave the slot");
    /* dup2 to itself would leave it to be closed by exec. */
    if (tap == wanted ? fcntl(tap, F_SETFD, 0) < 0 : dup2(tap, wanted) < 0)
        fail("place the tap");
    /* Descriptors of whoever started the edge, for example; what the VMM gets lies below the tap's. */
    if (close_range((unsigned)wanted + 1, ~0U, 0) < 0)
        fail("close other descriptors");
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        fail("give up root");
    execv(values[6], values + 6);
    fail(values[6]);
}
