// Layouts of the driver that both ends take apart, and sizes that follow from a value beside the pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace umsh {

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_nbytes;
  void* stream;
  const void* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56, "as the driver lays it out");
constexpr size_t kAttributeBytes = 72;  // CUlaunchAttribute: an int and padding, then a union of 64 bytes

struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS; its first version ends before `kernel`
  void* function;
  unsigned grid[3], block[3], shared_nbytes;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};
static_assert(sizeof(KernelNode) == 72, "as the driver lays it out");

// CUmemPool_attribute: the first three are ints, the others 64-bit words.
constexpr uint64_t pool_attribute_nbytes(int attribute) { return attribute >= 1 && attribute <= 3 ? 4 : 8; }

constexpr uint64_t kVersionedMax = 64 << 10;

// An NVML struct begins with its version: the size in the low 24 bits, or a plain number in older structs, which then
// have the size `newest`.
inline uint64_t versioned_nbytes(const void* data, uint64_t newest) {
  uint32_t version = 0;
  if (data) std::memcpy(&version, data, sizeof version);
  uint64_t nbytes = version >> 24 ? version & 0xFFFFFF : newest;
  return nbytes < 4 || nbytes > kVersionedMax ? newest : nbytes;
}

// CUlaunchAttributeID whose value names an event or a device node: not as an attribute of a stream or a graph's node.
constexpr int refuse_launch_attribute(int attribute) {
  return attribute == 7 || attribute == 12 || attribute == 13 ? 801 : 0;
}

}  // namespace umsh
