// Questions about pointers, answered from what this end has allocated.
#include <cstring>

#include "call.h"
#include "host_memory.h"
#include "session.h"

using namespace umsh;

namespace {

enum Attribute : int {
  kContext = 1, kMemoryType = 2, kDevicePointer = 3, kHostPointer = 4, kSyncMemops = 6, kBufferId = 7, kIsManaged = 8,
  kDeviceOrdinal = 9, kIsLegacyIpc = 10, kRangeStart = 11, kRangeSize = 12, kMapped = 13, kAllowedHandles = 14,
  kGpuDirect = 15, kAccessFlags = 16, kMempool = 17, kMappingSize = 18, kMappingBase = 19, kMemoryBlock = 20,
};
constexpr unsigned kTypeHost = 1, kTypeDevice = 2;

template <class T>
int put(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return kSuccess;
}

int ordinal(const Block& block) {
  uint64_t index = handle_index(block.context);
  return index >= 1 && index <= kDevicesMax ? int(index - 1) : 0;
}

int host_pointer(void* out, uint64_t address, const Block& block) {
  if (block.kind == MemoryKind::kDevice) return kInvalidValue;
  bool by_device = address - block.address >= block.nbytes;
  return put<uint64_t>(out, by_device ? block.address + (address - block.device) : address);
}

int device_pointer(void* out, uint64_t address, const Block& block) {
  if (block.kind == MemoryKind::kDevice || block.kind == MemoryKind::kManaged) return put<uint64_t>(out, address);
  if (address - block.address >= block.nbytes) return put<uint64_t>(out, address);
  int error;
  uint64_t at = device_address(address, error);
  return error ? error : put<uint64_t>(out, at);
}

int answer(void* out, int attribute, uint64_t address, const Block& block) {
  bool device = block.kind == MemoryKind::kDevice, managed = block.kind == MemoryKind::kManaged;
  switch (attribute) {
    case kContext: return put<uint64_t>(out, block.context);
    case kMemoryType: return put<unsigned>(out, device || managed ? kTypeDevice : kTypeHost);
    case kDevicePointer: return device_pointer(out, address, block);
    case kHostPointer: return host_pointer(out, address, block);
    case kSyncMemops: return put<unsigned>(out, 0);
    case kBufferId: return put<uint64_t>(out, block.id);
    case kIsManaged: return put<unsigned>(out, managed);
    case kDeviceOrdinal: return put<int>(out, ordinal(block));
    case kIsLegacyIpc: return put<unsigned>(out, 0);
    case kRangeStart: return put<uint64_t>(out, block.device ? block.device : block.address);
    case kRangeSize: return put<uint64_t>(out, block.nbytes);
    case kMapped: return put<unsigned>(out, 1);
    case kAllowedHandles: return put<uint64_t>(out, 0);
    case kGpuDirect: return put<unsigned>(out, 0);
    case kAccessFlags: return put<unsigned>(out, 3);  // read and write
    case kMempool: return put<uint64_t>(out, 0);
    case kMappingSize: return put<uint64_t>(out, block.nbytes);
    case kMappingBase: return put<uint64_t>(out, block.device ? block.device : block.address);
    case kMemoryBlock: return put<uint64_t>(out, block.id);
    default: return kNotSupported;
  }
}

bool find(uint64_t address, Block* block) {
  Memory& memory = session()->memory;
  return memory.find_device(address, block) || memory.find(address, block);
}

// What cuPointerGetAttributes gives for memory that CUDA does not know.
int nothing(void* out, int attribute) {
  switch (attribute) {
    case kMemoryType: case kIsManaged: case kSyncMemops: case kIsLegacyIpc: case kMapped: case kAccessFlags: case kGpuDirect:
      return put<unsigned>(out, 0);
    case kDeviceOrdinal: return put<int>(out, -2);
    default: return put<uint64_t>(out, 0);
  }
}

}  // namespace

UMSH_EXPORT int cuPointerGetAttribute(void* out, int attribute, uint64_t address) {
  if (int error = local_call()) return error;
  Block block;
  if (!out || !find(address, &block)) return kInvalidValue;
  return answer(out, attribute, address, block);
}

UMSH_EXPORT int cuPointerGetAttributes(unsigned count, int* attributes, void** out, uint64_t address) {
  if (int error = local_call()) return error;
  if (count == 0 || !attributes || !out) return kInvalidValue;
  Block block;
  bool known = find(address, &block);
  for (unsigned i = 0; i < count; ++i) {
    if (!out[i]) return kInvalidValue;
    bool missing = !known || answer(out[i], attributes[i], address, block) != kSuccess;
    if (missing) nothing(out[i], attributes[i]);
  }
  return kSuccess;
}

UMSH_EXPORT int cuPointerSetAttribute(const void* value, int attribute, uint64_t address) {
  if (int error = local_call()) return error;
  Block block;
  if (!value || !find(address, &block)) return kInvalidValue;
  // Copies are ordered by the connection, so that synchronous memory operations are what they always are here.
  return attribute == kSyncMemops ? kSuccess : kInvalidValue;
}
