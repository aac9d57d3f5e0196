#include "metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "agent.h"

struct memory {
  uint64_t total, available, cached, buffers, reclaimable;
};

static bool read_memory(struct memory *memory) {
  FILE *file = fopen("/proc/meminfo", "re");
  if (!file) return false;
  char line[128];
  while (fgets(line, sizeof line, file)) {
    unsigned long long kib;
    char name[32];
    if (sscanf(line, "%31[^:]: %llu", name, &kib) != 2) continue;
    if (strcmp(name, "MemTotal") == 0) memory->total = kib * 1024;
    else if (strcmp(name, "MemAvailable") == 0) memory->available = kib * 1024;
    else if (strcmp(name, "Cached") == 0) memory->cached = kib * 1024;
    else if (strcmp(name, "Buffers") == 0) memory->buffers = kib * 1024;
    else if (strcmp(name, "SReclaimable") == 0) memory->reclaimable = kib * 1024;
  }
  fclose(file);
  return memory->total > 0;
}

/* user nice system idle iowait irq softirq steal; idle and iowait are not busy. */
static bool read_cpu(uint64_t *busy, uint64_t *all) {
  FILE *file = fopen("/proc/stat", "re");
  if (!file) return false;
  unsigned long long part[8] = {0};
  int count = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &part[0], &part[1], &part[2], &part[3],
                     &part[4], &part[5], &part[6], &part[7]);
  fclose(file);
  if (count < 4) return false;
  *all = 0;
  for (int i = 0; i < 8; i++) *all += part[i];
  *busy = *all - part[3] - part[4];
  return true;
}

static double busy_percent(struct metrics *metrics, int cpus) {
  uint64_t busy = metrics->busy, all = metrics->all;
  if (!read_cpu(&metrics->busy, &metrics->all) || metrics->all <= all || metrics->busy < busy) return 0;
  return 100.0 * cpus * (double)(metrics->busy - busy) / (double)(metrics->all - all);
}

void metrics_route(struct request *request) {
  struct memory memory = {0};
  struct statvfs disk;
  struct sysinfo info;
  if (!read_memory(&memory) || statvfs("/", &disk) < 0 || sysinfo(&info) < 0) {
    request_fail_errno(request, errno, "metrics");
    return;
  }
  int cpus = get_nprocs();
  uint64_t total = (uint64_t)disk.f_blocks * disk.f_frsize, free_bytes = (uint64_t)disk.f_bfree * disk.f_frsize;
  struct text body = {0};
  text_addf(&body, "{\"memoryTotalBytes\":%llu,\"memoryUsedBytes\":%llu,\"memoryCacheBytes\":%llu",
            (unsigned long long)memory.total, (unsigned long long)(memory.total - memory.available),
            (unsigned long long)(memory.cached + memory.buffers + memory.reclaimable));
  text_addf(&body, ",\"diskTotalBytes\":%llu,\"diskUsedBytes\":%llu,\"cpuCount\":%d", (unsigned long long)total,
            (unsigned long long)(total - free_bytes), cpus);
  text_addf(&body, ",\"cpuUsedPercent\":%.2f,\"processCount\":%u}", busy_percent(&request->agent->metrics, cpus),
            (unsigned)info.procs);
  request_json(request, 200, &body);
}
