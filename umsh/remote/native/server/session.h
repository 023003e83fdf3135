// A session: what one client may use, and the calls it makes, executed on the backend in this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "generated/driver_table.h"
#include "generated/kinds.h"
#include "generated/nvml_table.h"
#include "server/decode.h"
#include "server/host_calls.h"
#include "server/staging.h"
#include "server/stats.h"
#include "server/waiters.h"
#include "server/window.h"
#include "server/writer.h"
#include "wire/handles.h"
#include "wire/launch.h"
#include "wire/ops.h"

namespace umsh {

struct Limits {
  uint64_t memory_nbytes = 0;        // 0: what the device has
  bool card_changes = false;         // NVML calls that change the card's state
};

struct Session {
  Session(int fd, Limits limits, Stats* stats);
  Driver driver;
  Nvml nvml;

  // Handles, as generated code uses them. An invalid new handle breaks the session: it then ends.
  void* lookup(Kind kind, uint64_t handle, int* error);
  void add(Kind kind, uint64_t handle, void* real);
  void* take(Kind kind, uint64_t handle, int* error);
  uint64_t intern(Kind kind, void* real);
  // Is the range inside one of this session's allocations? A CUresult.
  int check(uint64_t address, uint64_t nbytes) { return memory.check(address, nbytes); }
  bool may_change_card() const { return limits.card_changes; }
  bool broken() const { return broken_.load(std::memory_order_relaxed); }

  int open(Reader& in, Writer& out);         // windows and snapshot
  void use_context(uint64_t handle);         // current for the calls that follow
  void enter_waiter(void* context);          // prepares a waiting thread for a call
  int control(Op op, Reader& in, Writer& out);

  const Limits limits;
  Stats* const stats;
  FrameWriter writer;
  Waiters waiters;
  Memory memory;
  StagingPool staging;
  HostCalls host_calls;
  void* context = nullptr;                   // the real one that is current on the executing thread
  int device = 0;
  LaunchHistory launches;
  LaunchRecord launch;
  std::unordered_map<std::string, std::string> contents, partial;  // of modules, by hash; those still coming
  uint64_t contents_nbytes = 0;
  std::map<void*, std::vector<std::pair<size_t, size_t>>> layouts;  // of functions: offset and bytes of each parameter
  std::mutex transfers;                      // of `captured` and `mirror_stream`, which waiting threads use as well
  std::unordered_map<uint64_t, std::pair<void*, uint64_t>> captured;  // staging of uploads that are part of graphs
  std::atomic<int> captures{0};              // under way: the device must not be waited for as a whole
  void settle_memory();                      // gives freed memory and unused staging back, on a waiting thread
  void* mirror_stream = nullptr;             // copies of mapped memory, beside all other work

 private:
  std::mutex mutex_;
  std::map<std::pair<Kind, uint64_t>, void*> real_;
  std::map<std::pair<Kind, void*>, uint64_t> interned_;
  uint64_t next_ = uint64_t{1} << 43;        // indices that the server makes
  std::atomic<bool> broken_{false};
};

// The executing thread's capture mode is its client's; what the server does for itself must not end a capture.
class Relaxed {
 public:
  explicit Relaxed(const Driver& driver);
  ~Relaxed();

 private:
  const Driver& driver_;
  int mode_ = 2;
};

}  // namespace umsh
