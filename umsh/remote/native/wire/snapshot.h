// Facts of the server's devices that do not change: sent once when a session opens, answered locally afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec.h"

namespace umsh {

constexpr int kAttributeCount = 256;     // device attributes asked for: 1 .. 255
constexpr int kErrorCodeMax = 1000;      // error names asked for: 0 .. 999
constexpr uint64_t kDevicesMax = 64;

struct DeviceSnapshot {
  std::string name, pci_bus_id;
  uint8_t uuid[16] = {};
  uint64_t total_nbytes = 0;
  int32_t attributes[kAttributeCount] = {};
  int32_t attribute_results[kAttributeCount] = {};  // what cuDeviceGetAttribute returned for each
  int32_t priority_least = 0, priority_greatest = 0;
};

struct ErrorText {
  uint64_t code = 0;
  std::string name, text;
};

enum SnapshotFlags : uint64_t {
  kSnapshotWindow = 1,  // device addresses come from the agreed window; without it they are the driver's own
  kSnapshotMirror = 2,  // kOpMirrorAlloc works
};

struct Snapshot {
  uint64_t driver_version = 0;
  uint64_t flags = 0;
  std::vector<DeviceSnapshot> devices;
  std::vector<ErrorText> errors;
};

inline void encode_snapshot(const Snapshot& snapshot, Writer& out) {
  out.u64(snapshot.driver_version);
  out.u64(snapshot.flags);
  out.u64(snapshot.devices.size());
  for (const DeviceSnapshot& device : snapshot.devices) {
    out.text(device.name.c_str());
    out.text(device.pci_bus_id.c_str());
    out.blob(device.uuid, sizeof device.uuid);
    out.u64(device.total_nbytes);
    out.blob(device.attributes, sizeof device.attributes);
    out.blob(device.attribute_results, sizeof device.attribute_results);
    out.u64(uint64_t(int64_t(device.priority_least)));
    out.u64(uint64_t(int64_t(device.priority_greatest)));
  }
  out.u64(snapshot.errors.size());
  for (const ErrorText& error : snapshot.errors) {
    out.u64(error.code);
    out.text(error.name.c_str());
    out.text(error.text.c_str());
  }
}

// False when it is malformed.
inline bool decode_snapshot(Reader& in, Snapshot& out) {
  out.driver_version = in.u64();
  out.flags = in.u64();
  uint64_t count = in.u64();
  if (!in.ok() || count > kDevicesMax) return false;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    DeviceSnapshot device;
    in.text(device.name);
    in.text(device.pci_bus_id);
    in.exact(device.uuid, sizeof device.uuid);
    device.total_nbytes = in.u64();
    in.exact(device.attributes, sizeof device.attributes);
    in.exact(device.attribute_results, sizeof device.attribute_results);
    device.priority_least = int32_t(in.u64());
    device.priority_greatest = int32_t(in.u64());
    out.devices.push_back(std::move(device));
  }
  count = in.u64();
  if (!in.ok() || count > uint64_t(kErrorCodeMax)) return false;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    ErrorText error;
    error.code = in.u64();
    in.text(error.name);
    in.text(error.text);
    out.errors.push_back(std::move(error));
  }
  return in.finished();
}

}  // namespace umsh
