// Mapped and managed host memory: kernels use a copy at the same address on the server, kept equal at the points where
// the programming model makes one side's writes visible to the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "memory.h"

namespace umsh {

class Mirror {
 public:
  void reset(uint64_t base, uint64_t nbytes) { base_ = base; nbytes_ = nbytes; ranges.reset(base, nbytes); }
  Ranges ranges;

  // Makes the server's copy of host memory that kernels reach at `device`; a CUresult.
  int share(uint64_t device, void* host, uint64_t nbytes, bool managed);
  void unshare(uint64_t device);
  bool shared(uint64_t device) const;

  // Before work that may read mirrored memory: sends what the CPU has changed since. `words` are the launch's
  // parameters: memory that is mapped, not managed, counts when one of them points into it.
  int before_launch(const uint64_t* words, size_t count, uint64_t stream);
  // The same when nothing tells which memory the work uses (a graph): all of it.
  int before_any(uint64_t stream);
  bool inside(uint64_t address) const { return address - base_ < nbytes_; }
  bool any() const { return any_.load(std::memory_order_acquire); }
  // Is work under way that may write this host memory?
  bool under_way(const void* from, uint64_t nbytes) const;
  // Has no work that may write mirrored memory been sent since the last wait?
  bool clean() const { return !dirty_.load(std::memory_order_acquire); }
  // After a real wait: brings back what kernels have written. A wait for one stream's end settles that stream's work,
  // kEveryStream all of it; a wait for an event (`settles` false) leaves later work of its stream under way.
  static constexpr uint64_t kEveryStream = ~uint64_t{0};
  int after_wait(uint64_t stream, bool settles);

 private:
  struct Copy {
    uint64_t device = 0;
    char* host = nullptr;
    uint64_t nbytes = 0;
    bool managed = false;
    std::set<uint64_t> streams; // with work under way that may write it
    std::vector<char> synced;   // what both sides had when they were last equal
  };
  Copy* find(uint64_t device);
  int use(Copy& copy, uint64_t stream);
  int send_changes(Copy& copy);
  static void take_page(Copy& copy, uint64_t at, const char* page, uint64_t nbytes);
  int fetch(Copy& copy);
  uint64_t base_ = 0, nbytes_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Copy>> copies_;
  std::atomic<bool> any_{false}, any_managed_{false}, dirty_{false};
};

}  // namespace umsh
