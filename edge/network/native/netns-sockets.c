/*
 * Opens sockets inside named network namespaces and passes them to the edge over Node's child-process channel, so that one
 * process can listen and connect in the namespace of every slot. A socket stays in the namespace it was made in.
 *
 * In:  lines `"ID KIND NETNS ADDRESS PORT"` (a JSON string without escapes); lines that begin with `{` are Node's
 *      acknowledgements and are skipped. ID and PORT are decimal, ADDRESS an IP literal.
 * Out: `{"cmd":"NODE_HANDLE","type":TYPE,"msg":{"id":ID}}` with the descriptor attached, or `{"id":ID,"error":ERRNO-NAME}`.
 *
 * KIND `listen` TCP listener that takes connections to any destination the kernel steers to it (IP_TRANSPARENT);
 *      `udp` bound datagram socket; `connect` TCP socket, not connected yet (address and port are ignored but for its family).
 * Ends when the channel does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { line_max = 512, backlog = 256 };

struct request {
    unsigned id;
    char kind[16];
    char netns[65];
    char address[64];
    unsigned port;
};

static int channel = -1;
/* A namespace lives for as long as a process is in it, so none is stayed in. */
static int home = -1;

static int send_all(const char *text, size_t length, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    while (length > 0) {
        struct iovec part = {.iov_base = (void *)text, .iov_len = length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (fd >= 0) {
            memset(&control, 0, sizeof control);
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &fd, sizeof fd);
        }
        ssize_t sent = sendmsg(channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        text += sent;
        length -= (size_t)sent;
        fd = -1;
    }
    return 0;
}

static int answer_error(unsigned id, int error)
{
    char text[128];
    const char *name = strerrorname_np(error);
    int length = snprintf(text, sizeof text, "{\"id\":%u,\"error\":\"%s\"}\n", id, name != NULL ? name : "EIO");
    return send_all(text, (size_t)length, -1);
}

static bool is_name(const char *text)
{
    return text[0] != '\0' && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

static int enter_namespace(const char *name)
{
    char path[96];
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

static int parse_address(const struct request *request, struct sockaddr_storage *address, socklen_t *length)
{
    memset(address, 0, sizeof *address);
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    if (inet_pton(AF_INET, request->address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)request->port);
        *length = sizeof *v4;
        return 0;
    }
    if (inet_pton(AF_INET6, request->address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)request->port);
        *length = sizeof *v6;
        return 0;
    }
    errno = EINVAL;
    return -1;
}

static int configure(int fd, const struct request *request, const struct sockaddr_storage *address, socklen_t length)
{
    int one = 1;
    bool is_v6 = address->ss_family == AF_INET6;
    if (strcmp(request->kind, "connect") == 0)
        return 0;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0)
        return -1;
    if (is_v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0)
        return -1;
    if (strcmp(request->kind, "listen") == 0) {
        int level = is_v6 ? IPPROTO_IPV6 : IPPROTO_IP;
        if (setsockopt(fd, level, is_v6 ? IPV6_TRANSPARENT : IP_TRANSPARENT, &one, sizeof one) < 0)
            return -1;
    }
    if (bind(fd, (const struct sockaddr *)address, length) < 0)
        return -1;
    return strcmp(request->kind, "listen") == 0 ? listen(fd, backlog) : 0;
}

static int serve(const struct request *request)
{
    struct sockaddr_storage address;
    socklen_t length = 0;
    bool is_udp = strcmp(request->kind, "udp") == 0;
    const char *type = is_udp ? "dgram.Native" : "net.Native";
    if (!is_udp && strcmp(request->kind, "listen") != 0 && strcmp(request->kind, "connect") != 0)
        return answer_error(request->id, EINVAL);
    if (!is_name(request->netns) || request->port > 65535 || parse_address(request, &address, &length) < 0)
        return answer_error(request->id, EINVAL);
    if (enter_namespace(request->netns) < 0)
        return answer_error(request->id, errno);
    int fd = socket(address.ss_family, (is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = errno;
    if (setns(home, CLONE_NEWNET) < 0)
        return -1;
    if (fd < 0)
        return answer_error(request->id, error);
    int result;
    if (configure(fd, request, &address, length) < 0) {
        result = answer_error(request->id, errno);
    } else {
        char text[128];
        int size = snprintf(text, sizeof text, "{\"cmd\":\"NODE_HANDLE\",\"type\":\"%s\",\"msg\":{\"id\":%u}}\n", type,
                            request->id);
        result = send_all(text, (size_t)size, fd);
    }
    close(fd);
    return result;
}

static int take_line(char *line)
{
    struct request request;
    char end;
    if (line[0] != '"')
        return 0;
    int fields = sscanf(line, "\"%9u %15s %64s %63s %5u%c", &request.id, request.kind, request.netns, request.address,
                        &request.port, &end);
    if (fields != 6 || end != '"') {
        fprintf(stderr, "netns-sockets: malformed request\n");
        return -1;
    }
    return serve(&request);
}

int main(void)
{
    const char *number = getenv("NODE_CHANNEL_FD");
    if (number == NULL) {
        fprintf(stderr, "netns-sockets: start it with an IPC channel\n");
        return 2;
    }
    channel = atoi(number);
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return 2;
    FILE *input = fdopen(dup(channel), "r");
    if (input == NULL)
        return 2;
    int flags = fcntl(channel, F_GETFL);
    if (flags < 0 || fcntl(channel, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return 2;
    char line[line_max];
    while (fgets(line, sizeof line, input) != NULL) {
        if (strchr(line, '\n') == NULL)
            return 1;
        if (take_line(line) < 0)
            return 1;
    }
    return 0;
}
