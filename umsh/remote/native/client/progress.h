// Which work the program already knows to be done, so that a query after an elided synchronise agrees with it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "../wire/handles.h"

namespace umsh {

// Of streams and events: the number of their last request, and up to which request the program has waited. A table of
// fixed size: what was overwritten is unknown, and unknown means asking the server.
class Progress {
 public:
  void worked(uint64_t stream, uint64_t sequence) { slot(stream).set(stream, sequence); }
  void recorded(uint64_t event, uint64_t stream, uint64_t sequence) {
    Slot& s = slot(event);
    s.stream.store(stream, std::memory_order_relaxed);
    s.set(event, sequence);
  }
  // The program returned from an elided wait for this stream or event (0 and 1: the legacy stream), or for everything.
  void waited(uint64_t handle, uint64_t sequence) {
    if (slot(handle).holds(handle)) slot(handle).waited.store(sequence, std::memory_order_relaxed);
  }
  void waited_all(uint64_t sequence) { all_.store(sequence, std::memory_order_relaxed); }

  bool stream_done(uint64_t stream) const {
    const Slot& s = slot(stream);
    return s.holds(stream) && s.done(all_.load(std::memory_order_relaxed));
  }
  bool event_done(uint64_t event) const {
    const Slot& s = slot(event);
    if (!s.holds(event)) return false;
    uint64_t stream = s.stream.load(std::memory_order_relaxed);
    const Slot& of = slot(stream);
    if (of.holds(stream) && s.last.load(std::memory_order_relaxed) <= of.waited.load(std::memory_order_relaxed)) return true;
    return s.done(all_.load(std::memory_order_relaxed));
  }
  // The stream an event was last recorded in; the legacy stream when that is not known, since it covers the others.
  uint64_t stream_of_event(uint64_t event) const {
    const Slot& s = slot(event);
    return s.holds(event) ? s.stream.load(std::memory_order_relaxed) : 0;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> handle{~uint64_t{0}}, last{0}, waited{0}, stream{0};
    bool holds(uint64_t wanted) const { return handle.load(std::memory_order_acquire) == wanted; }
    bool done(uint64_t all) const {
      uint64_t sequence = last.load(std::memory_order_relaxed);
      return sequence <= all || sequence <= waited.load(std::memory_order_relaxed);
    }
    void set(uint64_t new_handle, uint64_t sequence) {
      if (!holds(new_handle)) {
        handle.store(~uint64_t{0}, std::memory_order_release);
        waited.store(0, std::memory_order_relaxed);
      }
      last.store(sequence, std::memory_order_relaxed);
      handle.store(new_handle, std::memory_order_release);
    }
  };
  static constexpr size_t kSlots = 4096;
  static size_t index(uint64_t handle) { return (handle >> 4) % kSlots; }
  Slot& slot(uint64_t handle) { return slots_[index(handle)]; }
  const Slot& slot(uint64_t handle) const { return slots_[index(handle)]; }
  std::array<Slot, kSlots> slots_;
  std::atomic<uint64_t> all_{0};
};

}  // namespace umsh
