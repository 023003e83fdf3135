// Synchronise and query. A synchronise that would bring nothing to the host does not wait: what it orders is ordered by
// the connection already, and the window bounds how far this end can run ahead.
#include "call.h"
#include "capture.h"
#include "hooks.h"
#include "host_memory.h"
#include "session.h"

namespace umsh {

namespace {

void* pointer(uint64_t handle) { return reinterpret_cast<void*>(handle); }

bool may_elide() {
  Session& s = *session();
  return s.on.elide && !any_capture() && s.nothing_to_bring();
}

}  // namespace

int wait_stream(uint64_t stream) {
  Session& s = *session();
  uint64_t until = s.connection->sent();
  if (may_elide()) {
    s.progress.waited(stream, until);
    return s.take_deferred();
  }
  int error = Call(kOp_cuStreamSynchronize).handle(kKindStream, pointer(stream)).wait();
  if (error) return error;
  s.progress.waited(stream, until);
  s.replays.waited(stream);
  return s.mirror.after_wait(stream, true);
}

int wait_all() {
  Session& s = *session();
  uint64_t until = s.connection->sent();
  if (may_elide()) {
    s.progress.waited_all(until);
    return s.take_deferred();
  }
  if (int error = Call(kOp_cuCtxSynchronize).wait()) return error;
  s.progress.waited_all(until);
  s.replays.waited_all();
  return s.mirror.after_wait(Mirror::kEveryStream, true);
}

int before_device_use(const uint64_t* words, size_t count, uint64_t stream) {
  Session& s = *session();
  for (size_t i = 0; i < count; ++i) {
    if (!s.mirror.inside(words[i])) continue;
    // Pinned memory has the same address for both, so that a kernel may be given it without a further call.
    Block block;
    int error = kSuccess;
    if (s.memory.find(words[i], &block) && block.device == 0) device_address(words[i], error);
    if (error) return error;
  }
  return s.mirror.before_launch(words, count, stream);
}

}  // namespace umsh

using namespace umsh;

namespace {

// Has the program waited for this by an elided call? Then the device must really have done it before it is asked.
int settle_event(void* event) {
  return Call(kOp_cuEventSynchronize).handle(kKindEvent, event).wait();
}

int elapsed(Op op, float* out, void* start, void* end) {
  if (int error = ready()) return error;
  if (!out) return kInvalidValue;
  Progress& progress = session()->progress;
  for (void* event : {start, end})
    if (progress.event_done(reinterpret_cast<uint64_t>(event)))
      if (int error = settle_event(event)) return error;
  Call call(op);
  call.u64(1).handle(kKindEvent, start).handle(kKindEvent, end);
  Reply reply = call.reply();
  if (reply.result == kSuccess) reply.u64(out, sizeof *out);
  return reply.result;
}

}  // namespace

UMSH_EXPORT int cuCtxSynchronize() {
  if (int error = ready_in_context()) return error;
  return wait_all();
}

UMSH_EXPORT int cuCtxSynchronize_v2(void* context) {
  if (int error = ready_in_context()) return error;
  return !context || reinterpret_cast<uint64_t>(context) == thread().current() ? wait_all() : int(kNotSupported);
}

UMSH_EXPORT int cuStreamSynchronize(void* stream) {
  if (int error = ready_in_context()) return error;
  return wait_stream(stream_of(stream));
}
UMSH_EXPORT int cuStreamSynchronize_ptsz(void* stream) { return cuStreamSynchronize(ptsz(stream)); }

UMSH_EXPORT int cuStreamQuery(void* handle) {
  if (int error = ready_in_context()) return error;
  Session& s = *session();
  uint64_t stream = stream_of(handle);
  if (s.on.elide && !any_capture() && s.progress.stream_done(stream)) return kSuccess;
  uint64_t until = s.connection->sent();
  int result = Call(kOp_cuStreamQuery).handle(kKindStream, handle).wait();
  if (result) return result;
  s.progress.waited(stream, until);
  s.replays.waited(stream);
  return s.mirror.after_wait(stream, true);
}
UMSH_EXPORT int cuStreamQuery_ptsz(void* stream) { return cuStreamQuery(ptsz(stream)); }

UMSH_EXPORT int cuEventSynchronize(void* event) {
  if (int error = ready()) return error;
  Session& s = *session();
  auto handle = reinterpret_cast<uint64_t>(event);
  uint64_t until = s.connection->sent();
  if (!may_elide()) {
    if (int error = Call(kOp_cuEventSynchronize).handle(kKindEvent, event).wait()) return error;
    s.progress.waited(handle, until);
    return s.mirror.after_wait(s.progress.stream_of_event(handle), false);
  }
  s.progress.waited(handle, until);
  return s.take_deferred();
}

UMSH_EXPORT int cuEventQuery(void* event) {
  if (int error = ready()) return error;
  Session& s = *session();
  auto handle = reinterpret_cast<uint64_t>(event);
  if (s.on.elide && !any_capture() && s.progress.event_done(handle)) return kSuccess;
  uint64_t until = s.connection->sent();
  int result = Call(kOp_cuEventQuery).handle(kKindEvent, event).wait();
  if (result) return result;
  s.progress.waited(handle, until);
  return s.mirror.after_wait(s.progress.stream_of_event(handle), false);
}

UMSH_EXPORT int cuEventElapsedTime(float* out, void* start, void* end) { return elapsed(kOp_cuEventElapsedTime, out, start, end); }
UMSH_EXPORT int cuEventElapsedTime_v2(float* out, void* start, void* end) {
  return elapsed(kOp_cuEventElapsedTime_v2, out, start, end);
}
