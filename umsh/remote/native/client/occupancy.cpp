// The block size that fills a multiprocessor best: found here from the server's answers, since the program may give a
// function of its own that says how much shared memory a block size needs.
#include "call.h"
#include "session.h"

using namespace umsh;

namespace {

using SharedBytes = size_t (*)(int block_size);

int attribute(Op op, uint64_t which, const void* object, Kind kind, int& out) {
  Reply reply = Call(op).u64(1).u64(which).handle(kind, object).reply();
  if (reply.result == kSuccess) reply.u64(&out, sizeof out);
  return reply.result;
}

int active_blocks(void* function, int block_size, size_t shared, unsigned flags, int& out) {
  Call call(kOp_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  call.u64(1).handle(kKindFunction, function).u64(uint64_t(block_size)).u64(shared).u64(flags);
  Reply reply = call.reply();
  if (reply.result == kSuccess) reply.u64(&out, sizeof out);
  return reply.result;
}

// The largest block among those that keep the most threads active.
int best_block(void* function, SharedBytes shared_of, size_t shared, int limit, unsigned flags, int& size, int& blocks) {
  constexpr uint64_t kMaxThreads = 0;
  constexpr int kWarp = 32;
  int most = 0, active = 0;
  if (int error = attribute(kOp_cuFuncGetAttribute, kMaxThreads, function, kKindFunction, most)) return error;
  if (limit > 0 && limit < most) most = limit;
  int best = -1;
  for (int tried = (most + kWarp - 1) / kWarp * kWarp; tried > 0; tried -= kWarp) {
    int threads = tried < most ? tried : most;
    size_t bytes = shared_of ? shared_of(threads) : shared;
    if (int error = active_blocks(function, threads, bytes, flags, active)) return error;
    if (threads * active <= best) continue;
    best = threads * active;
    size = threads;
    blocks = active;
  }
  return kSuccess;
}

}  // namespace

UMSH_EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, void* function, SharedBytes shared_of,
                                                          size_t shared, int limit, unsigned flags) {
  constexpr int kMultiprocessors = 16;
  if (int error = ready_in_context()) return error;
  if (!grid || !block || !function) return kInvalidValue;
  int size = 0, blocks = 0, device = 0;
  if (int error = best_block(function, shared_of, shared, limit, flags, size, blocks)) return error;
  if (int error = device_of(thread().current(), device)) return error;
  *block = size;
  *grid = blocks * session()->snapshot.devices[size_t(device)].attributes[kMultiprocessors];
  return kSuccess;
}

UMSH_EXPORT int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* function, SharedBytes shared_of, size_t shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared, limit, 0);
}
