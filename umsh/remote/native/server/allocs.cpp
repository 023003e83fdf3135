// Calls that allocate and free device memory.
#include "generated/serve.h"
#include "server/session.h"

namespace umsh {

namespace {

constexpr uint64_t kPitchAlign = 512;
constexpr uint64_t kDimensionMax = uint64_t{1} << 31;  // of rows and of their bytes: no product overflows
constexpr int kInvalid = 1;

int allocate(Session& s, uint64_t nbytes, Writer& out) {
  Relaxed relaxed(s.driver);
  uint64_t address = 0;
  if (int error = s.memory.allocate(nbytes, s.device, address)) return error;
  out.u64(address);
  return 0;
}

int release(Session& s, uint64_t address) {
  int error = s.memory.free(address);
  if (!error) s.settle_memory();
  return error;
}

}  // namespace

int serve_cuMemAlloc_v2(Session& s, Reader& in, Writer& out) {
  in.u64();
  uint64_t nbytes = in.u64();
  return in.finished() ? allocate(s, nbytes, out) : kWireError;
}

int serve_cuMemAllocPitch_v2(Session& s, Reader& in, Writer& out) {
  in.u64();
  in.u64();
  uint64_t width = in.u64(), height = in.u64(), pitch, nbytes;
  in.u64();
  if (!in.finished()) return kWireError;
  if (width > kDimensionMax || height > kDimensionMax) return kInvalid;
  pitch = (width + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
  nbytes = pitch * height;
  int error = allocate(s, nbytes, out);
  if (!error) out.u64(pitch);
  return error;
}

// Stream-ordered allocations are ordinary ones: the memory is there at once, and given back when its users are done.
int serve_cuMemAllocAsync(Session& s, Reader& in, Writer& out) {
  int error = 0;
  in.u64();
  uint64_t nbytes = in.u64();
  s.lookup(kKindStream, in.u64(), &error);
  if (!in.finished()) return kWireError;
  return error ? error : allocate(s, nbytes, out);
}

int serve_cuMemAllocFromPoolAsync(Session& s, Reader& in, Writer& out) {
  int error = 0;
  in.u64();
  uint64_t nbytes = in.u64();
  s.lookup(kKindMemPool, in.u64(), &error);
  s.lookup(kKindStream, in.u64(), &error);
  if (!in.finished()) return kWireError;
  return error ? error : allocate(s, nbytes, out);
}

int serve_cuMemFree_v2(Session& s, Reader& in, Writer&) {
  uint64_t address = in.u64();
  return in.finished() ? release(s, address) : kWireError;
}

int serve_cuMemFreeAsync(Session& s, Reader& in, Writer&) {
  int error = 0;
  uint64_t address = in.u64();
  s.lookup(kKindStream, in.u64(), &error);
  if (!in.finished()) return kWireError;
  return error ? error : release(s, address);
}

}  // namespace umsh
