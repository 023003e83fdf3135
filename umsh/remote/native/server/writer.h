// Everything that goes to the client, one frame after the other, from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "server/stats.h"
#include "wire/codec.h"
#include "wire/frame.h"
#include "wire/ops.h"

namespace umsh {

class FrameWriter {
 public:
  FrameWriter(int fd, Stats* stats) : fd_(fd), stats_(stats) {}
  void reply(uint64_t sequence, int result, const Writer& outputs);
  // A reply whose output is one blob that lies elsewhere.
  void reply_blob(uint64_t sequence, const void* data, uint64_t nbytes);
  void push(Op op, const Writer& payload);
  // Bytes of an asynchronous download, from where they lie.
  void host_write(uint64_t cookie, uint64_t offset, bool last, const void* data, uint64_t nbytes);
  void ping();                                     // not when someone is writing: then the client is not silent
  void failed(uint64_t sequence, int result);      // a call without reply; the first one goes into the next reply
  void set_executed(uint64_t sequence) { executed_.store(sequence, std::memory_order_relaxed); }
  void acknowledge();

 private:
  void write(const FrameHeader& header, const void* head, size_t head_nbytes, const void* data, size_t data_nbytes);
  void write_locked(const FrameHeader& header, const void* head, size_t head_nbytes, const void* data, size_t data_nbytes);
  ReplyHeader reply_header(int result);
  const int fd_;
  Stats* const stats_;
  std::mutex mutex_;
  std::atomic<uint64_t> executed_{0};
  std::mutex deferred_mutex_;
  int deferred_result_ = 0;
  uint64_t deferred_sequence_ = 0;
};

}  // namespace umsh
