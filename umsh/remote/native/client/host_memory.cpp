// Host memory that the device may use: ordinary memory of this process, mirrored on the server once kernels reach it.
#include "host_memory.h"

#include <sys/mman.h>

#include "call.h"
#include "session.h"

namespace umsh {

namespace {

constexpr unsigned kHostAllocFlags = 7;      // portable, device map, write combined
constexpr unsigned kRegisterPortable = 1, kRegisterDeviceMap = 2, kRegisterIoMemory = 4, kRegisterReadOnly = 8;
constexpr unsigned kManagedGlobal = 1, kManagedHost = 2;

// Memory at an address of the mirror window, so that kernels can have it at the same address.
void* map_host(uint64_t nbytes) {
  Session& s = *session();
  uint64_t address = s.mirror.ranges.take(nbytes);
  if (address == 0) return nullptr;
  void* at = mmap(reinterpret_cast<void*>(address), nbytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at != MAP_FAILED) return at;
  s.mirror.ranges.give(address, nbytes);
  return nullptr;
}

void unmap_host(uint64_t address, uint64_t nbytes) {
  Session& s = *session();
  s.mirror.unshare(address);
  // The addresses stay held: nothing else of this process may take them.
  mmap(reinterpret_cast<void*>(address), nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  s.mirror.ranges.give(address, nbytes);
}

// What is still to be written there must arrive before the memory goes: freeing waits, as the driver's does.
void settle(uint64_t address, uint64_t nbytes) {
  Session& s = *session();
  auto* at = reinterpret_cast<void*>(address);
  if (!s.downloads.overlaps(at, nbytes)) return;
  s.connection->flush();
  s.downloads.wait_for(at, nbytes);
}

int allocate(void** out, size_t nbytes, unsigned flags, MemoryKind kind) {
  if (int error = local_call_in_context()) return error;
  if (!out || nbytes == 0) return kInvalidValue;
  void* at = map_host(nbytes);
  if (!at) return kOutOfMemory;
  Block block;
  block.address = reinterpret_cast<uint64_t>(at);
  block.nbytes = nbytes;
  block.kind = kind;
  block.flags = flags;
  block.context = thread().current();
  session()->memory.add(block);
  *out = at;
  return kSuccess;
}

}  // namespace

uint64_t device_address(uint64_t host, int& error) {
  Session& s = *session();
  Block block;
  error = kInvalidValue;
  if (!s.memory.find(host, &block) || block.kind == MemoryKind::kDevice) return 0;
  if (block.device == 0) {
    bool own_address = block.kind != MemoryKind::kRegistered;
    block.device = own_address ? block.address : s.mirror.ranges.take(block.nbytes);
    if (block.device == 0) return error = kOutOfMemory, 0;
    error = s.mirror.share(block.device, reinterpret_cast<void*>(block.address), block.nbytes, false);
    if (error) return 0;
    s.memory.set_device(block.address, block.device);
  }
  error = kSuccess;
  return block.device + (host - block.address);
}

int free_managed(uint64_t address) {
  Session& s = *session();
  Block block;
  if (!s.memory.find(address, &block) || block.address != address) return kInvalidValue;
  settle(address, block.nbytes);
  s.memory.remove(address);
  unmap_host(address, block.nbytes);
  return kSuccess;
}

}  // namespace umsh

using namespace umsh;

UMSH_EXPORT int cuMemHostAlloc(void** out, size_t nbytes, unsigned flags) {
  if (flags & ~kHostAllocFlags) return kInvalidValue;
  return allocate(out, nbytes, flags, MemoryKind::kPinned);
}
UMSH_EXPORT int cuMemAllocHost_v2(void** out, size_t nbytes) { return allocate(out, nbytes, 0, MemoryKind::kPinned); }

UMSH_EXPORT int cuMemFreeHost(void* at) {
  if (int error = local_call()) return error;
  Session& s = *session();
  Block block;
  auto address = reinterpret_cast<uint64_t>(at);
  if (!s.memory.find(address, &block) || block.address != address || block.kind != MemoryKind::kPinned) return kInvalidValue;
  settle(address, block.nbytes);
  s.memory.remove(address);
  unmap_host(address, block.nbytes);
  return kSuccess;
}

UMSH_EXPORT int cuMemHostRegister_v2(void* at, size_t nbytes, unsigned flags) {
  if (int error = local_call_in_context()) return error;
  auto address = reinterpret_cast<uint64_t>(at);
  if (!at || nbytes == 0 || address + nbytes < address) return kInvalidValue;
  if (flags & ~(kRegisterPortable | kRegisterDeviceMap | kRegisterIoMemory | kRegisterReadOnly)) return kInvalidValue;
  if (flags & kRegisterIoMemory) return kNotSupported;
  Session& s = *session();
  if (s.memory.overlaps(address, nbytes)) return kHostMemoryAlreadyRegistered;
  Block block;
  block.address = address;
  block.nbytes = nbytes;
  block.kind = MemoryKind::kRegistered;
  block.flags = flags;
  block.context = thread().current();
  s.memory.add(block);
  return kSuccess;
}

UMSH_EXPORT int cuMemHostUnregister(void* at) {
  if (int error = local_call()) return error;
  Session& s = *session();
  Block block;
  auto address = reinterpret_cast<uint64_t>(at);
  if (!s.memory.find(address, &block) || block.address != address || block.kind != MemoryKind::kRegistered)
    return kHostMemoryNotRegistered;
  settle(address, block.nbytes);
  s.memory.remove(address);
  if (block.device == 0) return kSuccess;
  s.mirror.unshare(block.device);
  s.mirror.ranges.give(block.device, block.nbytes);
  return kSuccess;
}

UMSH_EXPORT int cuMemHostGetDevicePointer_v2(uint64_t* out, void* at, unsigned flags) {
  if (int error = ready()) return error;
  if (!out || flags) return kInvalidValue;
  int error;
  *out = device_address(reinterpret_cast<uint64_t>(at), error);
  return error;
}

UMSH_EXPORT int cuMemHostGetFlags(unsigned* out, void* at) {
  if (int error = local_call()) return error;
  Block block;
  if (!out || !session()->memory.find(reinterpret_cast<uint64_t>(at), &block) || block.kind != MemoryKind::kPinned)
    return kInvalidValue;
  *out = block.flags | 2;  // with unified addresses all of it is mapped
  return kSuccess;
}

UMSH_EXPORT int cuMemAllocManaged(uint64_t* out, size_t nbytes, unsigned flags) {
  if (flags != kManagedGlobal && flags != kManagedHost) return kInvalidValue;
  void* at = nullptr;
  if (int error = allocate(&at, nbytes, flags, MemoryKind::kManaged)) return error;
  auto address = reinterpret_cast<uint64_t>(at);
  Session& s = *session();
  if (int error = s.mirror.share(address, at, nbytes, true)) {
    free_managed(address);
    return error;
  }
  s.memory.set_device(address, address);
  *out = address;
  return kSuccess;
}
