// umsh-session: one client's calls, executed on a backend library. Started by umsh-serve after the hello.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/describe.h"
#include "server/executor.h"
#include "wire/socket.h"

using namespace umsh;

namespace {

struct Arguments {
  int fd = -1, stats_fd = -1;
  std::string backend, nvml;
  bool describe = false;
  Limits limits;
};

bool parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--describe") {
      out.describe = true;
      continue;
    }
    if (name == "--allow-card-changes") {
      out.limits.card_changes = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const char* value = argv[++i];
    if (name == "--fd") out.fd = std::atoi(value);
    else if (name == "--stats-fd") out.stats_fd = std::atoi(value);
    else if (name == "--backend") out.backend = value;
    else if (name == "--nvml") out.nvml = value;
    else if (name == "--memory-limit") out.limits.memory_nbytes = std::strtoull(value, nullptr, 10);
    else if (name != "--session") return false;  // a number that only helps to find this process
  }
  return (out.fd >= 0 || out.describe) && !out.backend.empty();
}

Stats* open_stats(int fd) {
  static Stats own;
  struct stat facts;
  if (fd < 0 || fstat(fd, &facts) != 0 || size_t(facts.st_size) < sizeof(Stats)) return &own;
  void* page = mmap(nullptr, sizeof(Stats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? &own : static_cast<Stats*>(page);
}

int fail(const char* what, const char* why) {
  std::fprintf(stderr, "umsh-session: %s: %s\n", what, why ? why : "");
  return kDeviceLost;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "umsh-session --fd N --stats-fd M --backend PATH [--nvml PATH] [--memory-limit BYTES] "
                         "[--session ID] [--allow-card-changes]\n");
    return 2;
  }
  if (arguments.describe) return describe(arguments.backend.c_str());
  Stats* stats = open_stats(arguments.stats_fd);
  stats->pid = uint64_t(getpid());
  stats->last_activity_ns = monotonic_ns();
  stats->magic = kStatsMagic;
  void* backend = dlopen(arguments.backend.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!backend) return fail("no backend", dlerror());
  // Threads of the session and of the driver use it until the process ends: it is never destroyed.
  auto* session = new Session(arguments.fd, arguments.limits, stats);
  load_functions(session->driver, backend);
  void* nvml = arguments.nvml.empty() ? nullptr : dlopen(arguments.nvml.c_str(), RTLD_NOW);
  load_functions(session->nvml, nvml ? nvml : backend);
  if (!session->driver.cuInit || session->driver.cuInit(0) != 0) return fail("no device", arguments.backend.c_str());
  stats->state = 1;
  prepare_socket(arguments.fd, int(kDeadSeconds));
  auto* executor = new Executor(*session, arguments.fd);
  int result = executor->run();
  if (const char* path = std::getenv("UMSH_SESSION_CALLS")) executor->write_calls(path);
  std::fflush(nullptr);
  _exit(result);
}
