// The state of this process as a client: one session, made by the first call that needs it and never torn down.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "../wire/handles.h"
#include "../wire/launch.h"
#include "../wire/snapshot.h"
#include "callbacks.h"
#include "connection.h"
#include "export.h"
#include "downloads.h"
#include "memory.h"
#include "mirror.h"
#include "progress.h"
#include "replays.h"
#include "results.h"
#include "settings.h"

namespace umsh {

class Reply;

class Session : public Receiver {
 public:
  Session(const Settings& settings, std::unique_ptr<Connection> connection);
  // Agrees on the address windows and takes the snapshot; false with the reason in `error`.
  bool open(std::string& error);

  const Settings settings;
  const Switches& on;
  const std::unique_ptr<Connection> connection;
  Snapshot snapshot;
  uint64_t window_base = 0, mirror_base = 0;

  Memory memory;
  Downloads downloads;
  Callbacks callbacks;
  Mirror mirror;
  Progress progress;
  Replays replays;
  std::mutex launch_mutex;   // keeps launches in the order of the history
  LaunchHistory launches;

  uint64_t make(uint8_t kind) { return make_handle(kind, next_index_.fetch_add(1, std::memory_order_relaxed)); }
  // Of what the server reported about an earlier call: said once, returned to the program by the next CUDA call.
  void note_deferred(const ReplyHeader& header);
  int take_deferred() { return deferred_.load(std::memory_order_relaxed) ? deferred_.exchange(0) : 0; }
  // The result of a request that has been waited for.
  int result_of(const Pending& pending);
  // A kernel's fault ends its context: every later call in it returns the same error, answered here or not.
  int fault_of(uint64_t context) const {
    bool this_one = context && context == faulty_.load(std::memory_order_relaxed);
    return this_one ? fault_.load(std::memory_order_relaxed) : 0;
  }
  void forget_fault(uint64_t context) {
    if (context == faulty_) faulty_ = 0;
  }
  // Is there nothing that a synchronise would have to bring to the host?
  bool nothing_to_bring() const { return downloads.none() && callbacks.none() && replays.none() && mirror.clean(); }

  void* host_write(uint64_t cookie, uint64_t offset, uint64_t nbytes) override;
  void host_written(uint64_t cookie) override;
  void host_call(uint64_t token, int status) override;
  void lost(const std::string& reason) override;

 private:
  int agree(uint64_t base, uint64_t nbytes, Reply& reply);
  std::atomic<uint64_t> next_index_{kFirstIndex};
  std::atomic<int> deferred_{0};
  std::atomic<uint64_t> faulty_{0};
  std::atomic<int> fault_{0};
};

Session* session();      // the open session, or null
UMSH_SHARED int connect_session();  // opens it on the first call; a CUresult
int initialise();        // cuInit
int ready();             // kSuccess, or why no call can be made: before cuInit, in a forked child, connection lost
int ready_in_context();  // the same, and the thread has a current context

// What belongs to one thread.
struct Thread {
  std::vector<uint64_t> contexts;                          // the stack; the last is current
  std::vector<std::pair<uint64_t, uint64_t>> own_streams;  // per context: the stream behind CU_STREAM_PER_THREAD
  int capture_mode = 0;
  ~Thread();  // its own streams end with it
  uint64_t current() const { return contexts.empty() ? 0 : contexts.back(); }
};
Thread& thread();

bool context_exists(uint64_t context);
int device_of(uint64_t context, int& device);  // a CUresult

// Streams and the contexts they were made in.
void note_stream(uint64_t stream, uint64_t context);
uint64_t context_of_stream(uint64_t stream);  // 0: unknown

// The stream that the program's value names, as a handle or 0; makes the thread's own stream when it is first named.
uint64_t stream_of(const void* stream);

}  // namespace umsh
