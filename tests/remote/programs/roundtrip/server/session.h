// A session without a device: what the generated server functions need of one, for the round-trip program.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "generated/driver_table.h"
#include "generated/kinds.h"
#include "generated/nvml_table.h"
#include "server/decode.h"

namespace umsh {

struct Session {
  Driver driver;
  Nvml nvml;

  void* lookup(Kind kind, uint64_t handle, int* error) {
    if (handle == 0) return nullptr;
    auto it = real.find({kind, handle});
    if (it != real.end()) return it->second;
    *error = 400;
    return nullptr;
  }
  void add(Kind kind, uint64_t handle, void* value) { real[{kind, handle}] = value; }
  void* take(Kind kind, uint64_t handle, int* error) {
    void* value = lookup(kind, handle, error);
    real.erase({kind, handle});
    return value;
  }
  uint64_t intern(Kind kind, void* value) {
    if (!value) return 0;
    for (auto& entry : real)
      if (entry.first.first == kind && entry.second == value) return entry.first.second;
    uint64_t handle = next++;
    real[{kind, handle}] = value;
    return handle;
  }
  int check(uint64_t address, uint64_t nbytes) {
    return address >= kDeviceBase && nbytes <= kDeviceBytes && address - kDeviceBase <= kDeviceBytes - nbytes ? 0 : 1;
  }
  bool may_change_card() const { return card_may_change; }

  static constexpr uint64_t kDeviceBase = 0x200000000000, kDeviceBytes = uint64_t{1} << 40;
  std::map<std::pair<Kind, uint64_t>, void*> real;
  uint64_t next = 0x5000;
  bool card_may_change = true;
};

}  // namespace umsh
