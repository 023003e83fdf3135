// What every address of the program is: device memory, pinned host memory, managed memory, or nothing of ours.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace umsh {

enum class MemoryKind : uint8_t { kDevice, kPinned, kRegistered, kManaged };

struct Block {
  uint64_t address = 0;   // as the program sees it
  uint64_t nbytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t device = 0;    // where kernels see it; 0 while they cannot
  uint32_t flags = 0;
  uint64_t context = 0;
  uint64_t id = 0;        // CU_POINTER_ATTRIBUTE_BUFFER_ID: never used twice
  bool holds(uint64_t at, uint64_t n) const { return at >= address && n <= nbytes && at - address <= nbytes - n; }
};

class Memory {
 public:
  void add(Block block);
  bool remove(uint64_t address, Block* out = nullptr);  // by its first byte
  bool find(uint64_t address, Block* out) const;        // the block that holds this byte
  bool find_device(uint64_t address, Block* out) const; // by the address that kernels use
  bool overlaps(uint64_t address, uint64_t nbytes) const;
  void set_device(uint64_t address, uint64_t device);
  void clear_context(uint64_t context);                 // all its blocks are gone

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Block> blocks_;
  std::map<uint64_t, uint64_t> device_;  // device address -> first byte, where they differ
  uint64_t next_id_ = 1;
};

// Hands out address ranges of the mirror window in steps of the server's 2 MiB granules.
class Ranges {
 public:
  static constexpr uint64_t kStep = uint64_t{2} << 20;
  void reset(uint64_t base, uint64_t nbytes);
  uint64_t take(uint64_t nbytes);  // 0 when there is no room
  void give(uint64_t address, uint64_t nbytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // first byte -> length
};

}  // namespace umsh
