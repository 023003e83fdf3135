// Initialisation, devices and error texts: answered from the snapshot of the session.
#include <cstdio>
#include <cstring>

#include "call.h"
#include "log.h"
#include "session.h"

using namespace umsh;

namespace {

const DeviceSnapshot* device_at(int device) {
  Session* s = session();
  bool known = s && device >= 0 && size_t(device) < s->snapshot.devices.size();
  return known ? &s->snapshot.devices[size_t(device)] : nullptr;
}

// kSuccess with the device, or why not.
int find(int device, const void* out, const DeviceSnapshot*& found) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  found = device_at(device);
  return found ? kSuccess : kInvalidDevice;
}

int uuid_of(void* out, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, out, found)) return error;
  std::memcpy(out, found->uuid, sizeof found->uuid);
  return kSuccess;
}

// What can happen before there is a session; everything else is in the snapshot.
const ErrorText kEarly[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the connection to the remote device is lost"},
    {100, "CUDA_ERROR_NO_DEVICE", "no remote device can be used"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported remotely"},
};

const ErrorText* error_text(int code) {
  if (Session* s = session())
    for (const ErrorText& error : s->snapshot.errors)
      if (error.code == uint64_t(code)) return &error;
  for (const ErrorText& error : kEarly)
    if (error.code == uint64_t(code)) return &error;
  return nullptr;
}

}  // namespace

UMSH_EXPORT int cuInit(unsigned flags) { return flags ? int(kInvalidValue) : initialise(); }

UMSH_EXPORT int cuDriverGetVersion(int* out) {
  if (!out) return kInvalidValue;
  if (int error = connect_session()) return error;
  *out = int(session()->snapshot.driver_version);
  return kSuccess;
}

UMSH_EXPORT int cuDeviceGetCount(int* out) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  *out = int(session()->snapshot.devices.size());
  return kSuccess;
}

UMSH_EXPORT int cuDeviceGet(int* out, int ordinal) {
  const DeviceSnapshot* found = nullptr;
  int error = find(ordinal, out, found);
  if (!error) *out = ordinal;
  return error;
}

UMSH_EXPORT int cuDeviceGetName(char* out, int capacity, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, out, found)) return error;
  if (capacity <= 0) return kInvalidValue;
  std::snprintf(out, size_t(capacity), "%s", found->name.c_str());
  return kSuccess;
}

UMSH_EXPORT int cuDeviceGetUuid(void* out, int device) { return uuid_of(out, device); }
UMSH_EXPORT int cuDeviceGetUuid_v2(void* out, int device) { return uuid_of(out, device); }
UMSH_EXPORT int cuDeviceGetLuid(char*, unsigned*, int) { return kNotSupported; }  // as on every Linux

UMSH_EXPORT int cuDeviceTotalMem_v2(size_t* out, int device) {
  const DeviceSnapshot* found = nullptr;
  int error = find(device, out, found);
  if (!error) *out = found->total_nbytes;
  return error;
}

UMSH_EXPORT int cuDeviceGetAttribute(int* out, int attribute, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, out, found)) return error;
  if (attribute < 1 || attribute >= kAttributeCount) return kInvalidValue;
  // Kernels see registered memory at an address of its own, and a running kernel's writes come with the next wait.
  constexpr int kHostNativeAtomic = 86, kPageable = 88, kConcurrentManaged = 89, kHostPointer = 91, kHostPageTables = 100;
  constexpr int kDirectManagedFromHost = 101;
  for (int absent : {kHostNativeAtomic, kPageable, kConcurrentManaged, kHostPointer, kHostPageTables, kDirectManagedFromHost})
    if (attribute == absent) return *out = 0, kSuccess;
  if (int error = found->attribute_results[attribute]) return error;
  *out = found->attributes[attribute];
  return kSuccess;
}

UMSH_EXPORT int cuDeviceComputeCapability(int* major, int* minor, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, major, found)) return error;
  if (!minor) return kInvalidValue;
  *major = found->attributes[75];
  *minor = found->attributes[76];
  return kSuccess;
}

// CUdevprop: what the driver fills from attributes.
UMSH_EXPORT int cuDeviceGetProperties(int* out, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, out, found)) return error;
  // Its 14 fields stand in the order of the first 14 attributes.
  std::memcpy(out, found->attributes + 1, 14 * sizeof(int));
  return kSuccess;
}

UMSH_EXPORT int cuDeviceGetPCIBusId(char* out, int capacity, int device) {
  const DeviceSnapshot* found = nullptr;
  if (int error = find(device, out, found)) return error;
  if (capacity <= int(found->pci_bus_id.size())) return kInvalidValue;
  std::snprintf(out, size_t(capacity), "%s", found->pci_bus_id.c_str());
  return kSuccess;
}

UMSH_EXPORT int cuDeviceGetByPCIBusId(int* out, const char* bus_id) {
  if (int error = local_call()) return error;
  if (!out || !bus_id) return kInvalidValue;
  const auto& devices = session()->snapshot.devices;
  for (size_t i = 0; i < devices.size(); ++i)
    if (strcasecmp(devices[i].pci_bus_id.c_str(), bus_id) == 0) return *out = int(i), kSuccess;
  return kInvalidDevice;
}

UMSH_EXPORT int cuGetErrorName(int code, const char** out) {
  if (!out) return kInvalidValue;
  const ErrorText* found = error_text(code);
  *out = found ? found->name.c_str() : nullptr;
  return found ? kSuccess : kInvalidValue;
}

UMSH_EXPORT int cuGetErrorString(int code, const char** out) {
  if (!out) return kInvalidValue;
  const ErrorText* found = error_text(code);
  *out = found ? found->text.c_str() : nullptr;
  return found ? kSuccess : kInvalidValue;
}
