// Handles as the program sees them: numbers made by the client, looked up by the server in its session's tables.
#pragma once

#include <cstdint>

namespace umsh {

// A handle looks like an aligned pointer outside every mapping: tag | kind | index | 0000.
// The client makes it, so that creating needs no reply; the server maps (kind, index) to the driver's own handle and
// refuses a handle that this session has not made or has destroyed. An index is never used twice in a session.
constexpr uint64_t kHandleTag = uint64_t{0xA5} << 56;

constexpr uint64_t make_handle(uint8_t kind, uint64_t index) {
  return kHandleTag | (uint64_t{kind} << 48) | (index << 4);
}
constexpr bool is_handle(uint64_t handle) { return (handle >> 56) == 0xA5; }
constexpr uint8_t handle_kind(uint64_t handle) { return uint8_t(handle >> 48); }
constexpr uint64_t handle_index(uint64_t handle) { return (handle >> 4) & ((uint64_t{1} << 44) - 1); }

// Indices below this are agreed, never created: the primary context of device d has index d + 1.
constexpr uint64_t kFirstIndex = 1024;

// Values that the driver defines itself and that pass unchanged.
constexpr uint64_t kStreamLegacy = 1;
constexpr uint64_t kStreamPerThread = 2;

}  // namespace umsh
