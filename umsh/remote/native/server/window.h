// Device memory of a session: addresses inside the window that both ends agreed on, and what of it is allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "generated/driver_table.h"
#include "server/stats.h"

namespace umsh {

// Free address ranges, neighbours joined.
class FreeRanges {
 public:
  void give(uint64_t address, uint64_t nbytes);
  uint64_t take(uint64_t nbytes, uint64_t align);  // 0: no room
  bool take_at(uint64_t address, uint64_t nbytes);

 private:
  std::map<uint64_t, uint64_t> ranges_;
};

class Memory {
 public:
  Memory(const Driver& driver, uint64_t limit, Stats* stats) : driver_(driver), limit_(limit), stats_(stats) {}
  // Reserves both windows; 801 when the backend cannot have these addresses.
  int open(uint64_t base, uint64_t nbytes, uint64_t mirror_base, uint64_t mirror_nbytes);
  bool windowed() const { return window_nbytes_ != 0; }

  int allocate(uint64_t nbytes, int device, uint64_t& address);
  int allocate_mirror(uint64_t address, uint64_t nbytes, int device);
  // The allocation is gone for the client at once; its memory when `settle` has run, after the device is idle.
  int free(uint64_t address);
  void settle();
  bool unsettled() const { return unsettled_.load(std::memory_order_relaxed) != 0; }

  void add_foreign(uint64_t address, uint64_t nbytes);  // a module's global: not ours to free
  int check(uint64_t address, uint64_t nbytes);

  // What a client manages itself (server/vmm.cpp): ranges of the window, and the memory that it counts for.
  int reserve(uint64_t nbytes, uint64_t align, uint64_t hint, uint64_t& address);
  void unreserve(uint64_t address, uint64_t nbytes);
  int charge(uint64_t nbytes);
  void uncharge(uint64_t nbytes);
  void forget_foreign(uint64_t address, uint64_t nbytes);

 private:
  struct Block {
    uint64_t nbytes;   // that the client asked for
    uint64_t held;     // that it takes
    uint64_t memory;   // physical handle of a large block; 0: small, foreign or the driver's own
    enum Kind : uint8_t { kSmall, kLarge, kMirror, kForeign, kDriver } kind;
  };
  int map(uint64_t address, uint64_t nbytes, int device, uint64_t& memory);
  int allocate_small(uint64_t nbytes, int device, uint64_t& address, uint64_t& held);
  int allocate_large(uint64_t nbytes, int device, uint64_t& address, Block& block);
  void put(uint64_t address, const Block& block);
  void release(uint64_t address, const Block& block);
  const Driver& driver_;
  const uint64_t limit_;
  Stats* const stats_;
  std::mutex mutex_;
  uint64_t base_ = 0, window_nbytes_ = 0, mirror_ = 0, mirror_nbytes_ = 0;
  uint64_t used_ = 0;
  FreeRanges addresses_;
  std::map<int, FreeRanges> small_;   // by device: inside granules that are mapped
  std::map<uint64_t, Block> blocks_;
  std::vector<std::pair<uint64_t, Block>> freed_;
  std::unordered_map<uint64_t, int> small_device_;
  std::atomic<uint64_t> unsettled_{0};
};

}  // namespace umsh
