/* Root: EROFS below, the scratch disk's ext4 above, joined by overlayfs; then the initramfs is left behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "log.h"

enum { EXT4_MAGIC_AT = 1024 + 56 };

static void make(const char *path, mode_t mode) {
  if (mkdir(path, mode) < 0 && errno != EEXIST) boot_fail("mkdir %s: %s", path, strerror(errno));
}

static void attach(const char *source, const char *place, const char *type, unsigned long flags, const char *data) {
  if (mount(source, place, type, flags, data) < 0) boot_fail("mount %s on %s: %s", type, place, strerror(errno));
}

/* The host formats the scratch disk: a template's first boot must not spend its time on it. */
static void check_scratch(void) {
  unsigned char magic[2] = {0};
  int fd = open("/dev/vdb", O_RDONLY | O_CLOEXEC);
  if (fd < 0) boot_fail("/dev/vdb: %s", strerror(errno));
  if (pread(fd, magic, sizeof magic, EXT4_MAGIC_AT) != sizeof magic || magic[0] != 0x53 || magic[1] != 0xef)
    boot_fail("the scratch disk /dev/vdb has no ext4 file system");
  close(fd);
}

static void mount_disks(void) {
  make("/lower", 0755);
  make("/scratch", 0755);
  make("/newroot", 0755);
  attach("/dev/vda", "/lower", "erofs", MS_RDONLY, NULL);
  check_scratch();
  /* noinit_itable: no kernel thread that writes inode tables into every clone's disk layer. */
  attach("/dev/vdb", "/scratch", "ext4", MS_NOATIME, "noinit_itable");
  make("/scratch/upper", 0755);
  make("/scratch/work", 0755);
  attach("overlay", "/newroot", "overlay", MS_NOATIME, "lowerdir=/lower,upperdir=/scratch/upper,workdir=/scratch/work");
}

static void move(const char *from, const char *to) {
  make(to, 0755);
  if (mount(from, to, NULL, MS_MOVE, NULL) < 0) boot_fail("move %s: %s", from, strerror(errno));
}

/* Frees the initramfs' memory. Other file systems below it are left alone. */
static void delete_contents(int directory_fd, dev_t device) {
  DIR *directory = fdopendir(directory_fd);
  if (!directory) {
    close(directory_fd);
    return;
  }
  struct stat found;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (fstatat(directory_fd, name, &found, AT_SYMLINK_NOFOLLOW) < 0 || found.st_dev != device) continue;
    if (!S_ISDIR(found.st_mode)) {
      unlinkat(directory_fd, name, 0);
      continue;
    }
    int child = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (child >= 0) delete_contents(child, device);
    unlinkat(directory_fd, name, AT_REMOVEDIR);
  }
  closedir(directory);
}

static void switch_root(void) {
  struct stat old;
  int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (chdir("/newroot") < 0) boot_fail("chdir: %s", strerror(errno));
  if (fd >= 0 && fstat(fd, &old) == 0) delete_contents(fd, old.st_dev);
  if (mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
    boot_fail("switch root: %s", strerror(errno));
}

static void mount_rest(void) {
  make("/dev/pts", 0755);
  make("/dev/shm", 01777);
  make("/run", 0755);
  make("/tmp", 01777);
  attach("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  attach("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  attach("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
  attach("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  make("/run/lock", 01777);
  chmod("/tmp", 01777);
  chmod("/run/lock", 01777);
  static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                         {"/proc/self/fd/0", "/dev/stdin"},
                                         {"/proc/self/fd/1", "/dev/stdout"},
                                         {"/proc/self/fd/2", "/dev/stderr"}};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST) agent_log("%s: %s", links[i][1], strerror(errno));
}

void boot_root(void) {
  mount_disks();
  move("/dev", "/newroot/dev");
  move("/proc", "/newroot/proc");
  move("/sys", "/newroot/sys");
  switch_root();
  mount_rest();
  agent_log("root is mounted");
}
