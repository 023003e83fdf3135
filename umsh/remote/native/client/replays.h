// Graphs that were launched while some graph of this process holds host memory or host functions: what they bring must
// have come before a wait that covers them returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace umsh {

class Replays {
 public:
  bool none() const { return !any_.load(std::memory_order_acquire); }
  void launched(uint64_t stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    streams_.insert(stream);
    any_ = true;
  }
  void waited(uint64_t stream) {
    if (none()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    streams_.erase(stream);
    any_ = !streams_.empty();
  }
  void waited_all() {
    if (none()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    streams_.clear();
    any_ = false;
  }

 private:
  std::mutex mutex_;
  std::set<uint64_t> streams_;
  std::atomic<bool> any_{false};
};

}  // namespace umsh
