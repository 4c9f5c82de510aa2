/* What is loaded here, to compare with what a table was measured under. */
#define _GNU_SOURCE
#include "versions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of the first mapped file whose name starts with prefix; 0 when there is none. */
static int mapped(const char* prefix, char* path, size_t size) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return 0;
  char* line = NULL;
  size_t room = 0;
  int found = 0;
  while (!found && getline(&line, &room, maps) >= 0) {
    char* start = strchr(line, '/');
    char* name = start ? strrchr(start, '/') + 1 : NULL;
    if (!name || strncmp(name, prefix, strlen(prefix)) != 0) continue;
    start[strcspn(start, "\n")] = '\0';
    found = snprintf(path, size, "%s", start) < (int)size;
  }
  free(line);
  fclose(maps);
  return found;
}

static void nccl_version(char* out, size_t size) {
  char path[4096];
  int (*get)(int*) = NULL, code = 0;
  void* library = mapped("libnccl.so", path, sizeof path) ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  *(void**)&get = dlsym(library ? library : RTLD_DEFAULT, "ncclGetVersion");
  if (get && get(&code) == 0) snprintf(out, size, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
  if (library) dlclose(library);
}

static void net_plugin(char* out, size_t size) {
  char path[4096];
  const char* named = getenv("NCCL_NET_PLUGIN");
  if (mapped("libnccl-net", path, sizeof path)) snprintf(out, size, "%s", strrchr(path, '/') + 1);
  else snprintf(out, size, "%s", named && *named ? named : "none");
}

static void driver_version(char* out, size_t size) {
  FILE* file = fopen("/sys/module/nvidia/version", "re");
  if (!file) return;
  if (fgets(out, (int)size, file)) out[strcspn(out, "\n")] = '\0';
  fclose(file);
}

void cb_versions(char here[CB_MEASURED][CB_VERSION_CHARS]) {
  memset(here, 0, (size_t)CB_MEASURED * CB_VERSION_CHARS);
  nccl_version(here[CB_NCCL], CB_VERSION_CHARS);
  net_plugin(here[CB_NET], CB_VERSION_CHARS);
  driver_version(here[CB_DRIVER], CB_VERSION_CHARS);
}
