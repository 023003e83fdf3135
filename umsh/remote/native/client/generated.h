// What the generated exports use besides Call.
#pragma once

#include <type_traits>

#include "../wire/frame.h"
#include "../wire/attributes.h"
#include "call.h"
#include "log.h"

namespace umsh {

// Any scalar as the word that travels: signed ones keep their sign.
template <class T>
uint64_t word(T value) {
  if constexpr (std::is_same_v<T, float>) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  } else if constexpr (std::is_same_v<T, double>) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  } else if constexpr (std::is_signed_v<T>) {
    return uint64_t(int64_t(value));
  } else {
    return uint64_t(value);
  }
}

// The capacity that a count parameter holds.
template <class T>
uint64_t room(const T* count) {
  return count ? word(*count) : 0;
}

inline bool too_long(uint64_t count, uint64_t size) { return count > kPayloadMax || count * size > kPayloadMax / 2; }

inline void* as_pointer(uint64_t handle) { return reinterpret_cast<void*>(handle); }

inline int refuse(const char* name, int code) {
  say_unsupported(name);
  return code;
}

}  // namespace umsh
