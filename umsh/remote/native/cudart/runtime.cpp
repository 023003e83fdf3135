// Start of the runtime: the driver's library, contexts, errors.
#include "cudart/runtime.h"

#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace umsh::cudart {

namespace {

thread_local int last_error = kSuccess;
thread_local int device = 0;
thread_local unsigned device_flags = 0;

void* library() {
  static void* found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return found;
}

// A fault of a kernel makes every later call fail: it stays until the device is reset.
bool sticky(int error) { return error == 700 || error == 710 || (error >= 714 && error <= 719); }

std::mutex mutex;
void* primary[64];

int make_current(int wanted) {
  static Symbol retain{"cuDevicePrimaryCtxRetain"}, set{"cuCtxSetCurrent"};
  if (wanted < 0 || wanted >= 64) return kInvalidDevice;
  std::lock_guard<std::mutex> lock(mutex);
  if (!primary[wanted]) {
    if (int error = retain(&primary[wanted], wanted)) return error;
  }
  return set(primary[wanted]);
}

}  // namespace

void* driver_symbol(const char* name) { return library() ? dlsym(library(), name) : nullptr; }

int done(int error) {
  if (error) last_error = error;
  return error;
}

int start() {
  static Symbol init{"cuInit"};
  static const int error = library() ? init(0u) : 35;  // cudaErrorInsufficientDriver: as with no driver at all
  return error;
}

int context() {
  static Symbol current{"cuCtxGetCurrent"};
  void* there = nullptr;
  if (int error = start()) return error;
  if (int error = current(&there)) return error;
  return there ? kSuccess : make_current(device);
}

int unsupported(const char* name) {
  static std::mutex saying;
  static std::set<std::string> said;
  std::lock_guard<std::mutex> lock(saying);
  if (said.insert(name).second) std::fprintf(stderr, "umsh: %s is not supported by this libcudart\n", name);
  return done(kNotSupported);
}

}  // namespace umsh::cudart

using namespace umsh::cudart;

UMSH_EXPORT int cudaGetLastError() {
  int error = last_error;
  if (!sticky(error)) last_error = kSuccess;
  return error;
}

UMSH_EXPORT int cudaPeekAtLastError() { return last_error; }

UMSH_EXPORT const char* cudaGetErrorName(int error) {
  static Symbol name{"cuGetErrorName"};
  static thread_local std::string kept;
  const char* text = nullptr;
  if (!error) return "cudaSuccess";
  if (name(error, &text) || !text) return "unrecognized error code";
  // CUDA_ERROR_INVALID_VALUE is cudaErrorInvalidValue.
  bool capital = true;
  std::string from = text;
  kept = "cuda";
  for (size_t i = from.compare(0, 5, "CUDA_") == 0 ? 5 : 0; i < from.size(); ++i) {
    if (from[i] == '_') {
      capital = true;
    } else {
      kept += capital ? from[i] : static_cast<char>(from[i] | 0x20);
      capital = false;
    }
  }
  return kept.c_str();
}

UMSH_EXPORT const char* cudaGetErrorString(int error) {
  static Symbol describe{"cuGetErrorString"};
  const char* text = nullptr;
  return describe(error, &text) || !text ? "unrecognized error code" : text;
}

UMSH_EXPORT int cudaRuntimeGetVersion(int* version) {
  if (!version) return done(kInvalidValue);
  *version = kRuntimeVersion;
  return kSuccess;
}

UMSH_EXPORT int cudaDriverGetVersion(int* version) {
  static Symbol f{"cuDriverGetVersion"};
  return done(f(version));
}

UMSH_EXPORT int cudaGetDeviceCount(int* count) {
  static Symbol f{"cuDeviceGetCount"};
  int error = start();
  if (!error) error = f(count);
  return done(!error && count && *count == 0 ? kNoDevice : error);
}

UMSH_EXPORT int cudaGetDevice(int* out) {
  static Symbol current{"cuCtxGetCurrent"}, of{"cuCtxGetDevice"};
  if (!out) return done(kInvalidValue);
  if (int error = start()) return done(error);
  void* there = nullptr;
  if (!current(&there) && there) return done(of(out));
  *out = device;
  return kSuccess;
}

UMSH_EXPORT int cudaSetDevice(int wanted) {
  int count = 0;
  if (int error = cudaGetDeviceCount(&count)) return error;
  if (wanted < 0 || wanted >= count) return done(kInvalidDevice);
  if (int error = make_current(wanted)) return done(error);
  device = wanted;
  return kSuccess;
}

UMSH_EXPORT int cudaInitDevice(int wanted, unsigned, unsigned) { return cudaSetDevice(wanted); }

UMSH_EXPORT int cudaSetDeviceFlags(unsigned flags) {
  static Symbol f{"cuDevicePrimaryCtxSetFlags_v2"};
  int error = start();
  device_flags = flags;
  return done(error ? error : f(device, flags & ~8u));  // 8: mapped host memory, which is always possible
}

UMSH_EXPORT int cudaGetDeviceFlags(unsigned* flags) {
  static Symbol f{"cuCtxGetFlags"};
  int error = lower(f, flags);
  if (!error) *flags |= 8u;
  return error;
}

UMSH_EXPORT int cudaDeviceReset() {
  static Symbol f{"cuDevicePrimaryCtxReset_v2"}, release{"cuDevicePrimaryCtxRelease_v2"}, set{"cuCtxSetCurrent"};
  int error = start();
  if (!error) error = set(static_cast<void*>(nullptr));
  if (!error) error = f(device);
  {
    // The context that was retained is gone: the next call makes a new one.
    std::lock_guard<std::mutex> lock(mutex);
    if (!error && primary[device]) release(device);
    if (!error) primary[device] = nullptr;
  }
  last_error = kSuccess;
  return done(error);
}

UMSH_EXPORT int cudaDeviceSynchronize() {
  static Symbol f{"cuCtxSynchronize"};
  return lower(f);
}

UMSH_EXPORT int cudaProfilerStart() {
  static Symbol f{"cuProfilerStart"};
  return lower(f);
}

UMSH_EXPORT int cudaProfilerStop() {
  static Symbol f{"cuProfilerStop"};
  return lower(f);
}
