// Functions of the client in a stream's order: the stream waits until the client has run them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "server/writer.h"

namespace umsh {

class HostCalls {
 public:
  explicit HostCalls(FrameWriter& writer) : writer_(writer) {}
  void call(uint64_t token);   // on the driver's thread: returns when the client has answered
  void done(uint64_t token);

 private:
  FrameWriter& writer_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::map<uint64_t, unsigned> waiting_;  // by token: how many calls are under way (a graph's may overlap)
};

}  // namespace umsh
