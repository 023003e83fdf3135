// Launches on the wire: each is sent as its difference from one of the last launches of the same function.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "attributes.h"
#include "codec.h"

namespace umsh {

constexpr size_t kParametersMax = 32764;             // bytes of one launch's parameters, as the driver has it
constexpr size_t kAttributesMax = 64 * kAttributeBytes;  // bytes of one launch's CUlaunchAttribute array
constexpr unsigned kHistory = 16;                    // launches of one function that both ends remember
constexpr size_t kHistoryBytesMax = size_t{64} << 20;  // of all functions together; later launches are not remembered

enum class LaunchKind : uint32_t { kPlain = 0, kCooperative = 1, kExtended = 2 };

// Configuration of a launch; 48 bytes without padding, the start of its record. The attribute array and the packed
// parameters follow, each padded to 8 bytes.
struct LaunchHead {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_nbytes;
  LaunchKind kind;
  uint64_t stream;
  uint32_t attributes_nbytes;
  uint32_t parameters_nbytes;
};
static_assert(sizeof(LaunchHead) == 48, "a launch head has no padding");

// A launch as one run of words, and views of its parts.
class LaunchRecord {
 public:
  // Room for a launch whose attributes and parameters the caller then fills; the padding is zero.
  void reset(const LaunchHead& head);
  const LaunchHead& head() const { return *reinterpret_cast<const LaunchHead*>(words_.data()); }
  char* attributes() { return reinterpret_cast<char*>(words_.data()) + sizeof(LaunchHead); }
  char* parameters() { return attributes() + padded(head().attributes_nbytes); }
  const char* attributes() const { return const_cast<LaunchRecord*>(this)->attributes(); }
  const char* parameters() const { return const_cast<LaunchRecord*>(this)->parameters(); }
  std::vector<uint64_t>& words() { return words_; }
  const std::vector<uint64_t>& words() const { return words_; }
  // Do the lengths in the head agree with the number of words and with the limits?
  bool consistent() const;

 private:
  std::vector<uint64_t> words_;
};

// What each end remembers of the launches so far, in the order of the wire. Both ends follow the same rule: a record
// that differs from all of its function's last ones replaces the oldest.
class LaunchHistory {
 public:
  struct Ring {
    std::array<std::vector<uint64_t>, kHistory> records;
    unsigned next = 0;   // slot that the next record takes
    unsigned used = 0;
  };
  Ring* ring(uint64_t function);                 // null when there is no room for one more function
  // False when the history is full: the record is then not remembered.
  bool remember(Ring& ring, const std::vector<uint64_t>& record);
  bool full() const { return nbytes_ > kHistoryBytesMax; }

 private:
  std::unordered_map<uint64_t, Ring> rings_;
  uint64_t last_function_ = 0;
  Ring* last_ring_ = nullptr;
  size_t nbytes_ = 0;
};

// Appends the payload of a kOpLaunch. `delta` false sends every record whole (the comparison in docs).
void encode_launch(LaunchHistory& history, uint64_t function, const LaunchRecord& record, bool delta, Writer& out);

// Reads a payload of kOpLaunch into `function` and `record`; false when it is malformed (the session then ends).
bool decode_launch(LaunchHistory& history, Reader& in, uint64_t& function, LaunchRecord& record);

}  // namespace umsh
