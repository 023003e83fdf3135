// Initialisation, devices and contexts.
#include <cstring>

#include "device.h"

namespace software {

namespace {

std::atomic<bool> initialised{false};
int device_count() {
  static const int count = int(setting("UMSH_SOFTWARE_DEVICES", 1));
  return count;
}
Context* primary(int device) {
  static auto* all = new std::vector<std::unique_ptr<Context>>;
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  while (int(all->size()) <= device) {
    all->push_back(std::make_unique<Context>());
    all->back()->device = int(all->size()) - 1;
  }
  return (*all)[size_t(device)].get();
}
Registry<Context>& contexts() { static auto* all = new Registry<Context>; return *all; }
thread_local std::vector<Context*> stack;
bool known(Context* context) {
  if (contexts().find(context)) return true;
  for (int device = 0; device < device_count(); ++device)
    if (context == primary(device)) return true;
  return false;
}

// What a program may ask before it launches: limits as on a mid-size card, and the abilities that are really here.
const std::map<int, int>& attributes() {
  static const auto* all = new std::map<int, int>{
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64},          // threads in a block, and its dimensions
      {5, 2147483647}, {6, 65535}, {7, 65535},           // grid dimensions
      {8, 49152}, {9, 65536}, {10, 32}, {12, 65536},     // shared and constant memory, warp, registers
      {13, 1000000}, {14, 512}, {16, 8}, {19, 1},        // clock, alignment, multiprocessors, map host memory
      {31, 1}, {39, 2048}, {41, 1},                      // concurrent kernels, threads per multiprocessor, unified addresses
      {75, 9}, {76, 0},                                  // compute capability
      {78, 1}, {81, 233472}, {82, 65536}, {83, 1}, {95, 1}, {97, 232448}, {102, 1}, {106, 32}, {115, 1},
  };
  return *all;
}

}  // namespace

Context* current() { return stack.empty() ? nullptr : stack.back(); }

int ready() {
  if (!initialised) return kNotInitialized;
  if (!current()) return kInvalidContext;
  return current()->sticky;
}

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
extern "C" {

int cuInit(unsigned flags) {
  if (flags) return kInvalidValue;
  initialised = true;
  return device_count() ? kSuccess : 100;
}
int cuDriverGetVersion(int* out) {
  if (!out) return kInvalidValue;
  *out = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* out) {
  if (!initialised) return kNotInitialized;
  if (!out) return kInvalidValue;
  *out = device_count();
  return kSuccess;
}
int cuDeviceGet(int* out, int ordinal) {
  if (!initialised) return kNotInitialized;
  if (!out) return kInvalidValue;
  if (ordinal < 0 || ordinal >= device_count()) return kInvalidDevice;
  *out = ordinal;
  return kSuccess;
}
int cuDeviceGetName(char* out, int capacity, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (!out || capacity <= 0) return kInvalidValue;
  snprintf(out, size_t(capacity), "umsh software device");
  return kSuccess;
}
int cuDeviceGetUuid_v2(unsigned char* out, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  std::memcpy(out, "umsh-software\0\0\0", 16);
  out[15] = static_cast<unsigned char>(device);
  return kSuccess;
}
int cuDeviceGetUuid(unsigned char* out, int device) { return cuDeviceGetUuid_v2(out, device); }
int cuDeviceTotalMem_v2(size_t* out, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  *out = setting("UMSH_SOFTWARE_MEMORY", uint64_t{1} << 30);
  return kSuccess;
}
int cuDeviceGetAttribute(int* out, int attribute, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (!out || attribute < 1 || attribute > 200) return kInvalidValue;
  auto it = attributes().find(attribute);
  *out = it == attributes().end() ? 0 : it->second;
  return kSuccess;
}
int cuDeviceGetPCIBusId(char* out, int capacity, int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (!out || capacity < 13) return kInvalidValue;
  snprintf(out, size_t(capacity), "0000:%02x:00.0", device + 1);
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** out, int device) {
  if (!initialised) return kNotInitialized;
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  *out = primary(device);
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device < 0 || device >= device_count() ? kInvalidDevice : kSuccess; }
int cuDevicePrimaryCtxReset_v2(int device) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  primary(device)->sticky = 0;
  return kSuccess;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (flags) *flags = 0;
  if (active) *active = 1;
  return kSuccess;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) { return device < 0 || device >= device_count() ? kInvalidDevice : kSuccess; }

int cuCtxCreate_v4(void** out, const void*, unsigned, int device) {
  if (!initialised) return kNotInitialized;
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  Context* context = contexts().add(std::make_unique<Context>());
  context->device = device;
  stack.push_back(context);
  *out = context;
  return kSuccess;
}
int cuCtxCreate_v2(void** out, unsigned flags, int device) { return cuCtxCreate_v4(out, nullptr, flags, device); }
int cuCtxDestroy_v2(void* handle) {
  Context* context = contexts().find(handle);
  if (!context) return kInvalidContext;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  contexts().remove(handle);
  return kSuccess;
}
int cuCtxSetCurrent(void* handle) {
  if (!initialised) return kNotInitialized;
  auto* context = static_cast<Context*>(handle);
  if (context && !known(context)) return kInvalidContext;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* handle) {
  if (!known(static_cast<Context*>(handle))) return kInvalidContext;
  stack.push_back(static_cast<Context*>(handle));
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** out) {
  if (stack.empty()) return kInvalidContext;
  if (out) *out = stack.back();
  stack.pop_back();
  return kSuccess;
}
int cuCtxGetCurrent(void** out) {
  if (!initialised) return kNotInitialized;
  *out = current();
  return kSuccess;
}
int cuCtxGetDevice(int* out) {
  if (!current()) return kInvalidContext;
  *out = current()->device;
  return kSuccess;
}
int cuCtxGetApiVersion(void*, unsigned* out) {
  *out = 13000;
  return kSuccess;
}
int cuCtxGetFlags(unsigned* out) {
  *out = 0;
  return current() ? kSuccess : kInvalidContext;
}
int cuCtxGetLimit(size_t* out, int limit) {
  if (int error = ready()) return error;
  if (!out || limit < 0 || limit > 7) return kInvalidValue;
  static const size_t values[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0};
  *out = values[limit];
  return kSuccess;
}
int cuCtxSetLimit(int limit, size_t) { return limit < 0 || limit > 7 ? kInvalidValue : ready(); }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return ready();
}

int cuGetErrorName(int error, const char** out) {
  static const std::map<int, const char*> names = {
      {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}};
  auto it = names.find(error);
  *out = it == names.end() ? nullptr : it->second;
  return it == names.end() ? kInvalidValue : kSuccess;
}
int cuGetErrorString(int error, const char** out) { return cuGetErrorName(error, out); }

}  // extern "C"
#pragma GCC visibility pop
