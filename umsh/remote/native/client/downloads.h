// Asynchronous downloads under way: the bytes come when the device is done, straight into the program's memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace umsh {

class Downloads {
 public:
  // Expects bytes for `to`; a captured one is delivered again by every replay of its graph.
  uint64_t add(void* to, uint64_t nbytes, bool captured);
  void remove(uint64_t cookie);
  void* place(uint64_t cookie, uint64_t offset, uint64_t nbytes) const;  // null: not expected
  void arrived(uint64_t cookie);
  void lost();                                            // no more will come

  bool none() const { return outstanding_.load(std::memory_order_acquire) == 0; }
  bool any_captured() const { return captured_.load(std::memory_order_acquire) != 0; }
  bool overlaps(const void* from, uint64_t nbytes) const;
  // Returns when nothing under way overlaps the range any more. The caller has flushed the requests.
  void wait_for(const void* from, uint64_t nbytes);

 private:
  struct Download {
    char* to;
    uint64_t nbytes;
    bool captured;
  };
  bool overlaps_locked(const void* from, uint64_t nbytes) const;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint64_t, Download> all_;
  uint64_t next_ = 1;
  bool lost_ = false;
  std::atomic<uint64_t> outstanding_{0}, captured_{0};
};

}  // namespace umsh
