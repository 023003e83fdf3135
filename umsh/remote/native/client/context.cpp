// Contexts: which one is current is the thread's own affair; the server is told with the next call.
#include <mutex>
#include <unordered_map>

#include "call.h"
#include "session.h"

using namespace umsh;

namespace {

uint64_t number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
void* pointer(uint64_t handle) { return reinterpret_cast<void*>(handle); }

struct PrimaryState {
  unsigned retained = 0;
  unsigned flags = 0;
};

// Contexts that exist: created ones with their device and flags, primary ones by their count.
struct Contexts {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::pair<int, unsigned>> created;
  PrimaryState primary[kDevicesMax];
};
Contexts& contexts() {
  static auto* all = new Contexts;
  return *all;
}

uint64_t primary_handle(int device) { return make_handle(kKindContext, uint64_t(device) + 1); }

bool device_exists(int device) { return device >= 0 && size_t(device) < session()->snapshot.devices.size(); }

// Device and flags of a context that exists.
bool describe(uint64_t context, int& device, unsigned& flags) {
  Contexts& all = contexts();
  std::lock_guard<std::mutex> lock(all.mutex);
  uint64_t index = handle_index(context);
  if (!is_handle(context) || handle_kind(context) != kKindContext) return false;
  if (index >= 1 && index <= kDevicesMax) {
    device = int(index - 1);
    flags = all.primary[index - 1].flags;
    return all.primary[index - 1].retained > 0;
  }
  auto it = all.created.find(context);
  if (it == all.created.end()) return false;
  device = it->second.first;
  flags = it->second.second;
  return true;
}

}  // namespace

int umsh::device_of(uint64_t context, int& device) {
  unsigned flags;
  return describe(context, device, flags) ? kSuccess : kInvalidContext;
}

bool umsh::context_exists(uint64_t context) {
  int device;
  unsigned flags;
  return describe(context, device, flags);
}

namespace {

int create(void** out, unsigned flags, int device) {
  if (int error = ready()) return error;
  if (!out) return kInvalidValue;
  if (!device_exists(device)) return kInvalidDevice;
  Call call(kOp_cuCtxCreate_v2);
  uint64_t context = call.make(kKindContext);
  if (int error = call.u64(flags).u64(uint64_t(device)).wait()) return error;
  {
    std::lock_guard<std::mutex> lock(contexts().mutex);
    contexts().created[context] = {device, flags};
  }
  thread().contexts.push_back(context);
  *out = pointer(context);
  return kSuccess;
}

int check_device(int device) {
  if (int error = ready()) return error;
  return device_exists(device) ? kSuccess : kInvalidDevice;
}

}  // namespace

UMSH_EXPORT int cuDevicePrimaryCtxRetain(void** out, int device) {
  if (int error = check_device(device)) return error;
  if (!out) return kInvalidValue;
  std::lock_guard<std::mutex> lock(contexts().mutex);
  ++contexts().primary[device].retained;
  *out = pointer(primary_handle(device));
  return kSuccess;
}

UMSH_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  if (int error = check_device(device)) return error;
  std::unique_lock<std::mutex> lock(contexts().mutex);
  PrimaryState& primary = contexts().primary[device];
  if (primary.retained == 0) return kInvalidContext;
  if (--primary.retained > 0) return kSuccess;
  lock.unlock();
  session()->memory.clear_context(primary_handle(device));
  return Call(kOp_cuDevicePrimaryCtxRelease_v2).u64(uint64_t(device)).status();
}

UMSH_EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  if (int error = check_device(device)) return error;
  session()->memory.clear_context(primary_handle(device));
  session()->forget_fault(primary_handle(device));
  return Call(kOp_cuDevicePrimaryCtxReset_v2).u64(uint64_t(device)).wait();
}

UMSH_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  if (int error = check_device(device)) return error;
  std::lock_guard<std::mutex> lock(contexts().mutex);
  contexts().primary[device].flags = flags;
  return kSuccess;
}

UMSH_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (int error = local_call()) return error;
  if (!device_exists(device)) return kInvalidDevice;
  if (!flags || !active) return kInvalidValue;
  std::lock_guard<std::mutex> lock(contexts().mutex);
  *flags = contexts().primary[device].flags;
  *active = contexts().primary[device].retained > 0;
  return kSuccess;
}

UMSH_EXPORT int cuCtxCreate_v2(void** out, unsigned flags, int device) { return create(out, flags, device); }
// Execution affinity and the parameters of a green context are refused, not dropped.
UMSH_EXPORT int cuCtxCreate_v3(void** out, void* affinity, int count, unsigned flags, int device) {
  return affinity || count ? int(kNotSupported) : create(out, flags, device);
}
UMSH_EXPORT int cuCtxCreate_v4(void** out, void* parameters, unsigned flags, int device) {
  return parameters ? int(kNotSupported) : create(out, flags, device);
}

UMSH_EXPORT int cuCtxDestroy_v2(void* handle) {
  if (int error = ready()) return error;
  uint64_t context = number(handle);
  {
    std::lock_guard<std::mutex> lock(contexts().mutex);
    if (contexts().created.erase(context) == 0) return kInvalidContext;
  }
  auto& stack = thread().contexts;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  session()->memory.clear_context(context);
  return Call(kOp_cuCtxDestroy_v2).handle(kKindContext, handle).status();
}

UMSH_EXPORT int cuCtxSetCurrent(void* handle) {
  if (int error = local_call()) return error;
  if (handle && !context_exists(number(handle))) return kInvalidContext;
  auto& stack = thread().contexts;
  if (!stack.empty()) stack.pop_back();
  if (handle) stack.push_back(number(handle));
  return kSuccess;
}

UMSH_EXPORT int cuCtxPushCurrent_v2(void* handle) {
  if (int error = local_call()) return error;
  constexpr size_t kDepthMax = 4096;
  if (!context_exists(number(handle)) || thread().contexts.size() >= kDepthMax) return kInvalidContext;
  thread().contexts.push_back(number(handle));
  return kSuccess;
}

UMSH_EXPORT int cuCtxPopCurrent_v2(void** out) {
  if (int error = local_call_in_context()) return error;
  if (out) *out = pointer(thread().current());
  thread().contexts.pop_back();
  return kSuccess;
}

UMSH_EXPORT int cuCtxGetCurrent(void** out) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  *out = pointer(thread().current());
  return kSuccess;
}

UMSH_EXPORT int cuCtxGetDevice(int* out) {
  if (int error = local_call_in_context()) return error;
  unsigned flags;
  if (!out) return kInvalidValue;
  return describe(thread().current(), *out, flags) ? kSuccess : kInvalidContext;
}

UMSH_EXPORT int cuCtxGetDevice_v2(int* out, void* context) {
  if (int error = local_call()) return error;
  unsigned flags;
  if (!out) return kInvalidValue;
  return describe(context ? number(context) : thread().current(), *out, flags) ? kSuccess : kInvalidContext;
}

UMSH_EXPORT int cuCtxGetFlags(unsigned* out) {
  if (int error = local_call_in_context()) return error;
  int device;
  if (!out) return kInvalidValue;
  return describe(thread().current(), device, *out) ? kSuccess : kInvalidContext;
}

UMSH_EXPORT int cuCtxGetId(void* context, unsigned long long* out) {
  if (int error = local_call()) return error;
  uint64_t handle = context ? number(context) : thread().current();
  if (!out) return kInvalidValue;
  if (!context_exists(handle)) return kInvalidContext;
  *out = handle_index(handle);
  return kSuccess;
}

UMSH_EXPORT int cuCtxGetApiVersion(void* context, unsigned* out) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  if (context && !context_exists(number(context))) return kInvalidContext;
  *out = 3020;  // what the driver has answered for every context since the version of that name
  return kSuccess;
}

UMSH_EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (int error = local_call_in_context()) return error;
  int device = 0;
  unsigned flags;
  if (!describe(thread().current(), device, flags)) return kInvalidContext;
  const DeviceSnapshot& facts = session()->snapshot.devices[size_t(device)];
  if (least) *least = facts.priority_least;
  if (greatest) *greatest = facts.priority_greatest;
  return kSuccess;
}

UMSH_EXPORT int cuCtxAttach(void**, unsigned) { return kNotSupported; }  // deprecated since CUDA 4
UMSH_EXPORT int cuCtxDetach(void*) { return kNotSupported; }
