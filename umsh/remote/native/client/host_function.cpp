// Functions of this process in a stream's order.
#include "call.h"
#include "capture.h"
#include "session.h"

using namespace umsh;

namespace {

int add(void* handle, Callbacks::Function function, bool may_be_captured) {
  Session& s = *session();
  uint64_t stream = stream_of(handle);
  bool captured = may_be_captured && any_capture() && stream && capturing(stream);
  uint64_t token = s.callbacks.add(std::move(function), captured);
  uint64_t request[] = {stream, token};
  uint64_t sequence = s.connection->send(kOpHostFunction, request, sizeof request, thread().current());
  if (sequence == 0) {
    s.callbacks.remove(token);
    return kDeviceUnavailable;
  }
  s.progress.worked(stream, sequence);
  return kSuccess;
}

}  // namespace

UMSH_EXPORT int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (int error = ready_in_context()) return error;
  if (!function) return kInvalidValue;
  return add(stream, [=](int) { function(data); }, true);
}
UMSH_EXPORT int cuLaunchHostFunc_ptsz(void* stream, void (*function)(void*), void* data) {
  return cuLaunchHostFunc(ptsz(stream), function, data);
}

UMSH_EXPORT int cuStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned flags) {
  if (int error = ready_in_context()) return error;
  if (!function || flags) return kInvalidValue;
  return add(stream, [=](int status) { function(stream, status, data); }, false);
}
UMSH_EXPORT int cuStreamAddCallback_ptsz(void* stream, void (*function)(void*, int, void*), void* data, unsigned flags) {
  return cuStreamAddCallback(ptsz(stream), function, data, flags);
}
