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
  static constexpr uint64_t kIdleBytesMax = uint64_t{64} << 20;
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
  // Is more than kIdleBytesMax unused? Then `trim` gives the driver all of it back: it may wait for the device, so it is
  // for a waiting thread, and not during captures.
  bool excess();
  void trim();
  void* keep(uint64_t nbytes);  // for the life of the session; null: there is no more

 private:
  struct Busy {
    Buffer buffer;
    void* event;
  };
  static constexpr unsigned kSmallest = 16, kClasses = 10;  // 64 KiB to 32 MiB
  static uint64_t capacity_of(unsigned size_class) { return uint64_t{1} << (kSmallest + size_class); }
  void reclaim();
  void* take_free(unsigned size_class);
  const Driver& driver_;
  // give() runs in host functions of streams: its lock is never held while the driver is called, which may wait for them.
  std::mutex free_mutex_;
  std::vector<void*> free_[kClasses];
  uint64_t idle_nbytes_ = 0;  // of free_
  std::mutex mutex_;   // of all the rest
  std::deque<Busy> busy_;
  std::vector<void*> events_;
  uint64_t nbytes_ = 0;
};

}  // namespace umsh
