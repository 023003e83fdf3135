// Operations of wire/ops.h that are no calls of the driver.
#include "server/functions.h"
#include "server/transfer.h"

namespace umsh {

namespace {

constexpr int kUnsupported = 801;

struct HostFunction {
  HostCalls* calls;
  uint64_t token;
  bool again;  // part of a graph, which may run it until the session ends
};

void run_host_function(void* data) {
  auto* function = static_cast<HostFunction*>(data);
  function->calls->call(function->token);
  if (!function->again) delete function;
}

int host_function(Session& s, Reader& in) {
  int error = 0;
  void* stream = s.lookup(kKindStream, in.u64(), &error);
  uint64_t token = in.u64();
  if (!in.finished()) return kWireError;
  if (error) return error;
  auto* function = new HostFunction{&s.host_calls, token, capturing(s, stream)};
  error = invoke(s.driver.cuLaunchHostFunc, kUnsupported, stream, reinterpret_cast<void*>(run_host_function), function);
  if (error) delete function;
  return error;
}

}  // namespace

int Session::control(Op op, Reader& in, Writer& out) {
  switch (op) {
    case kOpPing:
    case kOpPong: return 0;
    case kOpContext: {
      uint64_t handle = in.u64();
      if (!in.finished()) return kWireError;
      use_context(handle);
      return 0;
    }
    case kOpUpload: return upload(*this, in);
    case kOpDownloadAsync: return download_async(*this, in);
    case kOpUploadCaptured: return upload_captured(*this, in);
    case kOpRefreshCaptured: return refresh_captured(*this, in);
    case kOpMirrorUpload: return mirror_upload(*this, in);
    case kOpMirrorDownload: return mirror_download(*this, in, out);
    case kOpMirrorAlloc: return mirror_alloc(*this, in);
    case kOpMirrorFree: {
      int error = memory.free(in.u64());
      if (!error) settle_memory();
      return error;
    }
    case kOpModuleData: return module_data(*this, in);
    case kOpFunctionInfo: return function_info(*this, in, out);
    case kOpLaunch: return umsh::launch(*this, in);
    case kOpHostFunction: return host_function(*this, in);
    case kOpHostCallDone: return host_calls.done(in.u64()), 0;
    default: return kWireError;
  }
}

}  // namespace umsh
