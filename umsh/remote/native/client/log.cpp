#include "log.h"

#include <mutex>
#include <unistd.h>
#include <unordered_set>

namespace umsh {

void say(const std::string& line) {
  std::string whole = "umsh: " + line + "\n";
  ssize_t ignored = write(STDERR_FILENO, whole.data(), whole.size());  // one write: lines of threads do not mix
  (void)ignored;
}

void say_once(const std::string& line) {
  constexpr size_t kLinesMax = 1024;
  static auto* said = new std::unordered_set<std::string>;
  static auto* mutex = new std::mutex;
  {
    std::lock_guard<std::mutex> lock(*mutex);
    if (said->size() >= kLinesMax || !said->insert(line).second) return;
  }
  say(line);
}

void say_unsupported(const char* name) {
  say_once(std::string(name) + " is not supported remotely; it returned CUDA_ERROR_NOT_SUPPORTED and changed nothing");
}

}  // namespace umsh
