#include "server/describe.h"

#include <cstdio>
#include <dlfcn.h>

#include "generated/ops.h"

namespace umsh {

int describe(const char* path) {
  std::printf("tables ");
  for (unsigned octet : kTablesDigest) std::printf("%02x", octet);
  std::printf("\n");
  void* backend = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!backend) return std::fprintf(stderr, "%s\n", dlerror()), 5;
  Driver driver;
  load_functions(driver, backend);
  int count = 0;
  int error = driver.cuInit ? driver.cuInit(0) : 500;
  if (!error) error = driver.cuDeviceGetCount(&count);
  if (error) return std::fprintf(stderr, "cuInit failed with %d\n", error), 5;
  for (int device = 0; device < count; ++device) {
    char name[256] = "";
    driver.cuDeviceGetName(name, sizeof name, device);
    std::printf("device %s\n", name);
  }
  return 0;
}

}  // namespace umsh
