/*
 * The network card of machines that have one. Every clone has the same addresses: its slot on the host makes the difference, so
 * nothing has to be done after a restore. The same figures stand in `guestLink` of the edge's network/slot/layout.ts.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <net/route.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot.h"
#include "log.h"

static const char *const card = "eth0";
static const char *const address = "172.31.255.2", *const netmask = "255.255.255.252", *const gateway = "172.31.255.1";
static const char *const address6 = "fd73:6e61:7067::2", *const gateway6 = "fd73:6e61:7067::1";
enum { PREFIX6 = 64 };
static const char resolver[] = "nameserver 172.31.255.1\noptions timeout:3 attempts:2\n";

static struct sockaddr in4(const char *text) {
  struct sockaddr_in whole = {.sin_family = AF_INET};
  struct sockaddr plain;
  inet_pton(AF_INET, text, &whole.sin_addr);
  memcpy(&plain, &whole, sizeof plain);
  return plain;
}

static void need(int result, const char *what) {
  if (result < 0 && errno != EEXIST) boot_fail("network card: %s: %s", what, strerror(errno));
}

static void set_up_v4(int fd) {
  struct ifreq request = {0};
  strcpy(request.ifr_name, card);
  request.ifr_addr = in4(address);
  need(ioctl(fd, SIOCSIFADDR, &request), "address");
  request.ifr_netmask = in4(netmask);
  need(ioctl(fd, SIOCSIFNETMASK, &request), "netmask");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  need(ioctl(fd, SIOCSIFFLAGS, &request), "up");
  struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
  route.rt_dst = in4("0.0.0.0");
  route.rt_genmask = in4("0.0.0.0");
  route.rt_gateway = in4(gateway);
  need(ioctl(fd, SIOCADDRT, &route), "route");
}

static void set_up_v6(int fd, int index) {
  struct in6_ifreq request = {.ifr6_prefixlen = PREFIX6, .ifr6_ifindex = index};
  inet_pton(AF_INET6, address6, &request.ifr6_addr);
  need(ioctl(fd, SIOCSIFADDR, &request), "IPv6 address");
  struct in6_rtmsg route = {.rtmsg_flags = RTF_UP | RTF_GATEWAY, .rtmsg_metric = 1024, .rtmsg_ifindex = index};
  inet_pton(AF_INET6, gateway6, &route.rtmsg_gateway);
  need(ioctl(fd, SIOCADDRT, &route), "IPv6 route");
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) agent_log("%s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
}

/* A name in the image may be a link to where some service of a whole Debian would put it. */
static void write_resolver(void) {
  unlink("/etc/resolv.conf");
  int fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0 || write(fd, resolver, strlen(resolver)) < 0) boot_fail("/etc/resolv.conf: %s", strerror(errno));
  close(fd);
}

void boot_network(void) {
  unsigned index = if_nametoindex(card);
  if (index == 0) return;
  /* Nobody else is on this link: nothing has to be detected, asked for or announced. */
  write_text("/proc/sys/net/ipv6/conf/eth0/accept_dad", "0");
  write_text("/proc/sys/net/ipv6/conf/eth0/accept_ra", "0");
  write_text("/proc/sys/net/ipv6/conf/eth0/router_solicitations", "0");
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int fd6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) boot_fail("network card: %s", strerror(errno));
  set_up_v4(fd);
  if (fd6 >= 0) set_up_v6(fd6, (int)index);
  close(fd);
  if (fd6 >= 0) close(fd6);
  write_resolver();
}
