// Lists that the client takes apart: each member travels by itself, in order.
#include "call.h"
#include "results.h"

using namespace umsh;

extern "C" {
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t nbytes, void* stream);
int cuMemRangeGetAttribute(void* data, size_t data_nbytes, int attribute, uint64_t address, size_t nbytes);
}

namespace {

// The hints on when a source may be read are met by any order: a copy of ordinary host memory reads it at the call.
int copy_all(const uint64_t* dsts, const uint64_t* srcs, const size_t* sizes, size_t count, size_t* failed, void* stream) {
  if (!dsts || !srcs || !sizes || count == 0 || !stream) return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    int status = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
    if (status == kSuccess) continue;
    if (failed) *failed = i;
    return status;
  }
  return kSuccess;
}

}  // namespace

UMSH_EXPORT int cuMemcpyBatchAsync(uint64_t* dsts, uint64_t* srcs, size_t* sizes, size_t count, void*, size_t*, size_t,
                                   size_t* failed, void* stream) {
  return copy_all(dsts, srcs, sizes, count, failed, stream);
}
UMSH_EXPORT int cuMemcpyBatchAsync_v2(uint64_t* dsts, uint64_t* srcs, size_t* sizes, size_t count, void*, size_t*, size_t,
                                      void* stream) {
  return copy_all(dsts, srcs, sizes, count, nullptr, stream);
}
UMSH_EXPORT int cuMemcpyBatchAsync_ptsz(uint64_t* dsts, uint64_t* srcs, size_t* sizes, size_t count, void*, size_t*, size_t,
                                        size_t* failed, void* stream) {
  return copy_all(dsts, srcs, sizes, count, failed, ptsz(stream));
}
UMSH_EXPORT int cuMemcpyBatchAsync_v2_ptsz(uint64_t* dsts, uint64_t* srcs, size_t* sizes, size_t count, void*, size_t*, size_t,
                                           void* stream) {
  return copy_all(dsts, srcs, sizes, count, nullptr, ptsz(stream));
}

UMSH_EXPORT int cuMemRangeGetAttributes(void** data, size_t* sizes, int* attributes, size_t count, uint64_t address,
                                        size_t nbytes) {
  if (!data || !sizes || !attributes || count == 0) return kInvalidValue;
  for (size_t i = 0; i < count; ++i)
    if (int status = cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, nbytes)) return status;
  return kSuccess;
}
