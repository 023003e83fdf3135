// Device memory: the server hands out addresses, this end remembers them for questions about pointers.
#include "call.h"
#include "host_memory.h"
#include "session.h"

using namespace umsh;

namespace {

void remember(uint64_t address, uint64_t nbytes) {
  Block block;
  block.address = block.device = address;
  block.nbytes = nbytes;
  block.context = thread().current();
  session()->memory.add(block);
}

// The reply of an allocation: its address, which this end then knows.
int finish(Reply reply, uint64_t* out, uint64_t nbytes) {
  if (reply.result) return reply.result;
  uint64_t address = reply.u64();
  if (!reply.ok()) return kDeviceUnavailable;
  remember(address, nbytes);
  *out = address;
  return kSuccess;
}

// Freed here at once and there in order. Unknown addresses are the server's to judge.
int free_device(Call& call, uint64_t address) {
  Block block;
  Session& s = *session();
  if (s.memory.find(address, &block) && block.address == address && block.kind == MemoryKind::kDevice) s.memory.remove(address);
  return call.status();
}

}  // namespace

UMSH_EXPORT int cuMemAlloc_v2(uint64_t* out, size_t nbytes) {
  if (int error = ready_in_context()) return error;
  if (!out || nbytes == 0) return kInvalidValue;
  return finish(Call(kOp_cuMemAlloc_v2).u64(1).u64(nbytes).reply(), out, nbytes);
}

UMSH_EXPORT int cuMemAllocPitch_v2(uint64_t* out, size_t* pitch, size_t width, size_t height, unsigned element) {
  if (int error = ready_in_context()) return error;
  if (!out || !pitch || width == 0 || height == 0) return kInvalidValue;
  Reply reply = Call(kOp_cuMemAllocPitch_v2).u64(1).u64(1).u64(width).u64(height).u64(element).reply();
  if (reply.result) return reply.result;
  uint64_t address = reply.u64();
  *pitch = reply.u64();
  if (!reply.ok()) return kDeviceUnavailable;
  remember(address, *pitch * height);
  *out = address;
  return kSuccess;
}

UMSH_EXPORT int cuMemAllocAsync(uint64_t* out, size_t nbytes, void* stream) {
  if (int error = ready_in_context()) return error;
  if (!out) return kInvalidValue;
  return finish(Call(kOp_cuMemAllocAsync).u64(1).u64(nbytes).handle(kKindStream, stream).reply(), out, nbytes);
}

UMSH_EXPORT int cuMemAllocFromPoolAsync(uint64_t* out, size_t nbytes, void* pool, void* stream) {
  if (int error = ready_in_context()) return error;
  if (!out) return kInvalidValue;
  Call call(kOp_cuMemAllocFromPoolAsync);
  call.u64(1).u64(nbytes).handle(kKindMemPool, pool).handle(kKindStream, stream);
  return finish(call.reply(), out, nbytes);
}

UMSH_EXPORT int cuMemFree_v2(uint64_t address) {
  if (int error = ready()) return error;
  if (address == 0) return kSuccess;
  Session& s = *session();
  Block block;
  if (s.memory.find(address, &block) && block.kind == MemoryKind::kManaged) return free_managed(address);
  Call call(kOp_cuMemFree_v2);
  call.u64(address);
  return free_device(call, address);
}

UMSH_EXPORT int cuMemFreeAsync(uint64_t address, void* stream) {
  if (int error = ready_in_context()) return error;
  Call call(kOp_cuMemFreeAsync);
  call.u64(address).handle(kKindStream, stream);
  return free_device(call, address);
}

UMSH_EXPORT int cuMemAllocAsync_ptsz(uint64_t* out, size_t nbytes, void* stream) {
  return cuMemAllocAsync(out, nbytes, ptsz(stream));
}
UMSH_EXPORT int cuMemAllocFromPoolAsync_ptsz(uint64_t* out, size_t nbytes, void* pool, void* stream) {
  return cuMemAllocFromPoolAsync(out, nbytes, pool, ptsz(stream));
}
UMSH_EXPORT int cuMemFreeAsync_ptsz(uint64_t address, void* stream) { return cuMemFreeAsync(address, ptsz(stream)); }

UMSH_EXPORT int cuMemGetAddressRange_v2(uint64_t* base, size_t* nbytes, uint64_t address) {
  if (int error = local_call()) return error;
  Block block;
  Session& s = *session();
  if (!s.memory.find_device(address, &block) && !s.memory.find(address, &block)) return kNotFound;
  if (base) *base = block.device ? block.device : block.address;
  if (nbytes) *nbytes = block.nbytes;
  return kSuccess;
}
