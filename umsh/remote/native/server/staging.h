// Pinned memory that bytes pass through between the connection and the device. One interface, so that memory shared with
// the device can take its place.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "generated/driver_table.h"

namespace umsh {

class StagingPool {
 public:
  static constexpr uint64_t kBytesMax = uint64_t{1} << 30;
  explicit StagingPool(const Driver& driver) : driver_(driver) {}

  struct Buffer {
    void* data = nullptr;   // null: there is none, and `error` says why
    unsigned size_class = 0;
    int error = 2;          // out of memory, or what the driver said
  };
  Buffer take(uint64_t nbytes);
  void give(Buffer buffer);
  // Given back when the stream's work so far is done. A CUresult.
  int give_after(Buffer buffer, void* stream);
  void* keep(uint64_t nbytes);  // for the life of the session; null: there is no more

 private:
  struct Busy {
    Buffer buffer;
    void* event;
  };
  static constexpr unsigned kSmallest = 16, kClasses = 10;  // 64 KiB to 32 MiB
  void reclaim();
  void* take_free(unsigned size_class);
  const Driver& driver_;
  // give() runs in host functions of streams: its lock is never held while the driver is called, which may wait for them.
  std::mutex free_mutex_;
  std::vector<void*> free_[kClasses];
  std::mutex mutex_;   // of all the rest
  std::deque<Busy> busy_;
  std::vector<void*> events_;
  uint64_t nbytes_ = 0;
};

}  // namespace umsh
