// The page of counters that a session shares with umsh-serve.
#pragma once

#include <atomic>
#include <cstdint>

namespace umsh {

constexpr uint64_t kStatsMagic = 0x5441545348534D55;  // "UMSHSTAT"

struct Stats {
  std::atomic<uint64_t> magic{0}, calls{0}, bytes_in{0}, bytes_out{0}, device_bytes{0}, last_activity_ns{0}, pid{0}, state{0};
};
static_assert(sizeof(Stats) == 64, "umsh-serve reads it by offset");

inline void count(std::atomic<uint64_t>& counter, uint64_t n) { counter.fetch_add(n, std::memory_order_relaxed); }

uint64_t monotonic_ns();

}  // namespace umsh
