/* From the kernel's first instruction of /init to a root file system in which functions can run. PID 1 only. */
#ifndef BOOT_H
#define BOOT_H

/* Sets the machine up; `token` receives the 64 hex digits of the kernel command line. Powers off when it can't. */
void boot_guest(char token[64]);
/* Prints why and powers the machine off. */
_Noreturn void boot_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* boot-devices.c: loads /modules in the order of /modules.order, and waits for the two disks. */
void boot_devices(void);
/* boot-root.c: mounts root and scratch, and makes them the root. */
void boot_root(void);
/* boot-groups.c: control groups for the agent and for processes. */
void boot_groups(void);
/* boot-network.c: addresses, routes and resolver of the network card, where there is one. */
void boot_network(void);

#define BOOT_PROCESS_GROUP "/sys/fs/cgroup/p"

#endif
