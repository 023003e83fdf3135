// Streams: the one behind each thread's CU_STREAM_PER_THREAD, and which context each belongs to.
#include <mutex>
#include <unordered_map>

#include "call.h"
#include "session.h"

namespace umsh {

namespace {

struct Streams {
  std::mutex mutex;
  std::unordered_map<uint64_t, uint64_t> contexts;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

}  // namespace

void note_stream(uint64_t stream, uint64_t context) {
  std::lock_guard<std::mutex> lock(streams().mutex);
  streams().contexts[stream] = context;
}

Thread::~Thread() {
  Session* s = session();
  for (auto [context, stream] : own_streams) {
    if (!s || !context_exists(context)) continue;
    // Not by Call: the buffers of this thread's calls may be gone already.
    s->connection->send(kOp_cuStreamDestroy_v2, &stream, sizeof stream, context);
  }
}

uint64_t context_of_stream(uint64_t stream) {
  std::lock_guard<std::mutex> lock(streams().mutex);
  auto it = streams().contexts.find(stream);
  return it == streams().contexts.end() ? 0 : it->second;
}

uint64_t stream_of(const void* stream) {
  auto number = reinterpret_cast<uint64_t>(stream);
  if (number != kStreamPerThread) return number == kStreamLegacy ? 0 : number;
  Thread& mine = thread();
  for (auto& own : mine.own_streams)
    if (own.first == mine.current()) return own.second;
  Call call(kOp_cuStreamCreate);
  uint64_t made = call.make(kKindStream);
  if (call.u64(0).status() != kSuccess) return kStreamPerThread;  // the server refuses it by name
  mine.own_streams.emplace_back(mine.current(), made);
  return made;
}

}  // namespace umsh

using namespace umsh;

UMSH_EXPORT int cuStreamGetCtx(void* handle, void** out) {
  if (int error = local_call_in_context()) return error;
  if (!out) return kInvalidValue;
  uint64_t stream = stream_of(handle);
  uint64_t context = stream == 0 ? thread().current() : context_of_stream(stream);
  if (context == 0) return kInvalidHandle;
  *out = reinterpret_cast<void*>(context);
  return kSuccess;
}
UMSH_EXPORT int cuStreamGetCtx_ptsz(void* stream, void** out) { return cuStreamGetCtx(ptsz(stream), out); }

// Green contexts are not made here: every stream belongs to a plain one.
UMSH_EXPORT int cuStreamGetCtx_v2(void* stream, void** out, void** green) {
  if (green) *green = nullptr;
  return cuStreamGetCtx(stream, out);
}
UMSH_EXPORT int cuStreamGetCtx_v2_ptsz(void* stream, void** out, void** green) { return cuStreamGetCtx_v2(ptsz(stream), out, green); }
