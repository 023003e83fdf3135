// Handles, contexts and the opening of a session.
#include "server/session.h"

#include <ctime>
#include <unistd.h>

#include "wire/snapshot.h"

namespace umsh {

namespace {

constexpr uint64_t kServerMade = uint64_t{1} << 43;
constexpr size_t kHandlesMax = size_t{1} << 21;
constexpr int kInvalidContext = 201, kInvalidHandle = 400, kUnsupported = 801, kNvmlInvalidArgument = 2;


}  // namespace

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

Session::Session(int fd, Limits given, Stats* counters)
    : limits(given), stats(counters), writer(fd, counters), memory(driver, given.memory_nbytes, counters), staging(driver),
      host_calls(writer) {}

void* Session::lookup(Kind kind, uint64_t handle, int* error) {
  if (handle == 0) {
    if (kind >= kKindNvmlDevice) *error = kNvmlInvalidArgument;  // NVML itself follows some null handles
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = real_.find({kind, handle});
  if (it != real_.end()) return it->second;
  *error = kind == kKindContext ? kInvalidContext : kInvalidHandle;
  return nullptr;
}

void Session::add(Kind kind, uint64_t handle, void* real) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool proper = is_handle(handle) && handle_kind(handle) == kind && handle_index(handle) != 0 &&
                !(handle_index(handle) & kServerMade) && (handle & 15) == 0;
  if (!proper || real_.size() >= kHandlesMax || !real_.emplace(std::make_pair(kind, handle), real).second) broken_ = true;
}

void* Session::take(Kind kind, uint64_t handle, int* error) {
  void* real = lookup(kind, handle, error);
  std::lock_guard<std::mutex> lock(mutex_);
  real_.erase({kind, handle});
  interned_.erase({kind, real});
  return real;
}

uint64_t Session::intern(Kind kind, void* real) {
  if (!real) return 0;
  std::lock_guard<std::mutex> lock(mutex_);
  auto known = interned_.find({kind, real});
  if (known != interned_.end() && real_.count({kind, known->second})) return known->second;
  // One that the client made is known by a search: this is asked for rarely.
  for (auto& entry : real_)
    if (entry.first.first == kind && entry.second == real) return interned_[{kind, real}] = entry.first.second;
  uint64_t handle = make_handle(kind, next_++);
  real_[{kind, handle}] = real;
  return interned_[{kind, real}] = handle;
}

// A primary context is retained when it is first used.
void Session::use_context(uint64_t handle) {
  int error = 0;
  uint64_t index = handle_index(handle);
  void* real = lookup(kKindContext, handle, &error);
  bool primary = is_handle(handle) && handle_kind(handle) == kKindContext && index >= 1 && index < kFirstIndex;
  if (error && primary && invoke(driver.cuDevicePrimaryCtxRetain, kUnsupported, &real, int(index - 1)) == 0)
    add(kKindContext, handle, real);
  context = real;
  invoke(driver.cuCtxSetCurrent, kUnsupported, context);
  if (context) invoke(driver.cuCtxGetDevice, kUnsupported, &device);
}

void Session::enter_waiter(void* wanted) {
  thread_local void* current = nullptr;
  thread_local bool relaxed = false;
  int mode = 2;  // what the server waits for by itself must not end a client's capture
  if (!relaxed) invoke(driver.cuThreadExchangeStreamCaptureMode, kUnsupported, &mode);
  relaxed = true;
  if (wanted != current) invoke(driver.cuCtxSetCurrent, kUnsupported, wanted);
  current = wanted;
}

void Session::settle_memory() {
  if ((!memory.unsettled() && !staging.excess()) || captures.load() > 0) return;
  // When too much waits already, a later free sees to it.
  (void)waiters.run([this, wanted = context] {
    enter_waiter(wanted);
    if (captures.load() > 0) return;
    memory.settle();
    if (staging.excess()) staging.trim();
  });
}

Relaxed::Relaxed(const Driver& driver) : driver_(driver) {
  invoke(driver_.cuThreadExchangeStreamCaptureMode, kUnsupported, &mode_);
}
Relaxed::~Relaxed() { invoke(driver_.cuThreadExchangeStreamCaptureMode, kUnsupported, &mode_); }

namespace {

DeviceSnapshot describe(const Driver& driver, int device) {
  DeviceSnapshot made;
  char text[256] = {};
  if (invoke(driver.cuDeviceGetName, kUnsupported, text, int(sizeof text), device) == 0) made.name = text;
  if (invoke(driver.cuDeviceGetPCIBusId, kUnsupported, text, int(sizeof text), device) == 0) made.pci_bus_id = text;
  invoke(driver.cuDeviceGetUuid_v2, kUnsupported, made.uuid, device);
  invoke(driver.cuDeviceTotalMem_v2, kUnsupported, &made.total_nbytes, device);
  for (int a = 1; a < kAttributeCount; ++a)
    made.attribute_results[a] = invoke(driver.cuDeviceGetAttribute, kUnsupported, &made.attributes[a], a, device);
  made.priority_greatest = -5;  // what every device of today has; asking needs a context
  return made;
}

void describe_errors(const Driver& driver, Snapshot& snapshot) {
  for (int code = 0; code < kErrorCodeMax; ++code) {
    void *name = nullptr, *text = nullptr;  // the table knows pointers only
    if (invoke(driver.cuGetErrorName, kUnsupported, code, &name) || invoke(driver.cuGetErrorString, kUnsupported, code, &text)) continue;
    if (name && text) snapshot.errors.push_back({uint64_t(code), static_cast<char*>(name), static_cast<char*>(text)});
  }
}

}  // namespace

int Session::open(Reader& in, Writer& out) {
  uint64_t base = in.u64(), nbytes = in.u64(), mirror = in.u64(), mirror_nbytes = in.u64();
  in.u64();
  if (!in.finished()) return kWireError;
  if (int error = memory.open(base, nbytes, mirror, mirror_nbytes)) return error;
  Snapshot snapshot;
  int value = 0;
  invoke(driver.cuDriverGetVersion, kUnsupported, &value);
  snapshot.driver_version = uint64_t(value);
  snapshot.flags = kSnapshotWindow | kSnapshotMirror;
  if (int error = invoke(driver.cuDeviceGetCount, kUnsupported, &value)) return error;
  for (int device_index = 0; device_index < value && device_index < int(kDevicesMax); ++device_index) {
    snapshot.devices.push_back(describe(driver, device_index));
    if (limits.memory_nbytes && limits.memory_nbytes < snapshot.devices.back().total_nbytes)
      snapshot.devices.back().total_nbytes = limits.memory_nbytes;
  }
  describe_errors(driver, snapshot);
  Writer bytes;
  encode_snapshot(snapshot, bytes);
  out.blob(bytes.data(), bytes.size());
  return 0;
}

}  // namespace umsh
