// Handles and device addresses inside structs: the steps that the generated translations are made of.
#pragma once

#include <cstring>

#include "server/decode.h"
#include "server/session.h"

namespace umsh {

constexpr int kRefusedStruct = 801;  // a field names something of the client's process

// CUjit_option whose value is a pointer, or that is newer than these tables.
inline int refuse_pointer_options(const void* options, uint64_t count) {
  for (uint64_t i = 0; options && i < count; ++i) {
    int id;
    std::memcpy(&id, static_cast<const char*>(options) + i * sizeof id, sizeof id);
    bool pointer = (id >= 3 && id <= 6) || id == 17 || id == 18 || id == 25 || id == 27;
    if (pointer || id < 0 || id > 33) return kRefusedStruct;
  }
  return 0;
}

inline uint64_t field_at(const void* data, size_t offset) {
  uint64_t value;
  std::memcpy(&value, static_cast<const char*>(data) + offset, sizeof value);
  return value;
}
inline void set_field(void* data, size_t offset, uint64_t value) {
  std::memcpy(static_cast<char*>(data) + offset, &value, sizeof value);
}

inline void translate_handle(Session& s, void* data, size_t offset, Kind kind, Way way, int* error) {
  uint64_t value = field_at(data, offset);
  if (way == Way::kIn) set_field(data, offset, reinterpret_cast<uint64_t>(s.lookup(kind, value, error)));
  else set_field(data, offset, s.intern(kind, reinterpret_cast<void*>(value)));
}

inline void require_null(void* data, size_t offset, Way way, int* error) {
  if (way == Way::kOut) set_field(data, offset, 0);
  else if (field_at(data, offset) != 0) *error = kRefusedStruct;
}

inline void check_device(Session& s, const void* data, size_t offset, Way way, int* error) {
  uint64_t address = field_at(data, offset);
  if (way == Way::kIn && address != 0 && *error == 0) *error = s.check(address, 1);
}

}  // namespace umsh
