// Contexts, waits, captures and graph launches.
#include "generated/serve.h"
#include "server/session.h"

namespace umsh {

namespace {

constexpr int kUnsupported = 801;

int with(Session& s, int (*call)(void*), Kind kind, Reader& in, bool ends = false) {
  int error = 0;
  uint64_t handle = in.u64();
  void* real = ends ? s.take(kind, handle, &error) : s.lookup(kind, handle, &error);
  if (!in.finished()) return kWireError;
  return error ? error : invoke(call, kUnsupported, real);
}

int with_device(int (*call)(int), Reader& in) {
  uint64_t device = in.u64();
  return in.finished() ? invoke(call, kUnsupported, int(device)) : kWireError;
}

}  // namespace

int serve_cuCtxCreate_v2(Session& s, Reader& in, Writer&) {
  uint64_t handle = in.u64(), flags = in.u64(), device = in.u64();
  if (!in.finished()) return kWireError;
  void* made = nullptr;
  int error = s.driver.cuCtxCreate_v4 ? s.driver.cuCtxCreate_v4(&made, nullptr, unsigned(flags), int(device))
                                      : invoke(s.driver.cuCtxCreate_v2, kUnsupported, &made, unsigned(flags), int(device));
  if (error) return error;
  void* popped = nullptr;
  invoke(s.driver.cuCtxPopCurrent_v2, kUnsupported, &popped);  // which one is current is the client's to say
  invoke(s.driver.cuCtxSetCurrent, kUnsupported, s.context);
  s.add(kKindContext, handle, made);
  return 0;
}

int serve_cuCtxDestroy_v2(Session& s, Reader& in, Writer&) {
  int error = 0;
  void* real = s.take(kKindContext, in.u64(), &error);
  if (!in.finished()) return kWireError;
  if (error) return error;
  if (real == s.context) s.context = nullptr;
  return invoke(s.driver.cuCtxDestroy_v2, kUnsupported, real);
}

// The session keeps its primary contexts to its end: what they hold is given back with the process.
int serve_cuDevicePrimaryCtxRelease_v2(Session&, Reader& in, Writer&) { return in.u64(), in.finished() ? 0 : kWireError; }
int serve_cuDevicePrimaryCtxReset_v2(Session& s, Reader& in, Writer&) { return with_device(s.driver.cuDevicePrimaryCtxReset_v2, in); }

int serve_cuCtxSynchronize(Session& s, Reader& in, Writer&) {
  return in.finished() ? invoke(s.driver.cuCtxSynchronize, kUnsupported) : kWireError;
}
int serve_cuStreamSynchronize(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuStreamSynchronize, kKindStream, in); }
int serve_cuStreamQuery(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuStreamQuery, kKindStream, in); }
int serve_cuStreamDestroy_v2(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuStreamDestroy_v2, kKindStream, in, true); }
int serve_cuEventSynchronize(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuEventSynchronize, kKindEvent, in); }
int serve_cuEventQuery(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuEventQuery, kKindEvent, in); }
int serve_cuGraphExecDestroy(Session& s, Reader& in, Writer&) { return with(s, s.driver.cuGraphExecDestroy, kKindGraphExec, in, true); }

int serve_cuStreamBeginCapture_v2(Session& s, Reader& in, Writer&) {
  int error = 0;
  void* stream = s.lookup(kKindStream, in.u64(), &error);
  uint64_t mode = in.u64();
  if (!in.finished()) return kWireError;
  if (!error) error = invoke(s.driver.cuStreamBeginCapture_v2, kUnsupported, stream, int(mode));
  if (!error) s.captures.fetch_add(1);
  return error;
}

int serve_cuStreamEndCapture(Session& s, Reader& in, Writer&) {
  int error = 0, status = 0;
  void *stream = s.lookup(kKindStream, in.u64(), &error), *graph = nullptr;
  uint64_t handle = in.u64();
  if (!in.finished()) return kWireError;
  if (error) return error;
  invoke(s.driver.cuStreamIsCapturing, kUnsupported, stream, &status);
  error = invoke(s.driver.cuStreamEndCapture, kUnsupported, stream, &graph);
  int after = 0;
  invoke(s.driver.cuStreamIsCapturing, kUnsupported, stream, &after);
  if (status && !after && s.captures.fetch_sub(1) == 1) s.settle_memory();
  if (!error) s.add(kKindGraph, handle, graph);
  return error;
}

int serve_cuThreadExchangeStreamCaptureMode(Session& s, Reader& in, Writer& out) {
  int mode = 0;
  if (!in.exact(&mode, sizeof mode) || !in.finished()) return kWireError;
  int error = invoke(s.driver.cuThreadExchangeStreamCaptureMode, kUnsupported, &mode);
  out.blob(&mode, sizeof mode);
  return error;
}

int serve_cuGraphLaunch(Session& s, Reader& in, Writer&) {
  int error = 0;
  void* exec = s.lookup(kKindGraphExec, in.u64(), &error);
  void* stream = s.lookup(kKindStream, in.u64(), &error);
  if (!in.finished()) return kWireError;
  return error ? error : invoke(s.driver.cuGraphLaunch, kUnsupported, exec, stream);
}

}  // namespace umsh
