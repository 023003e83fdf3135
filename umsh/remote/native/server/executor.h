// Takes requests in their order and executes them; what may wait for the device goes to a waiting thread.
#pragma once

#include <array>
#include <atomic>

#include "server/session.h"
#include "wire/socket.h"

namespace umsh {

enum Exit : int { kClientLeft = 0, kPeerDead = 3, kProtocolError = 4, kDeviceLost = 5 };

class Executor {
 public:
  Executor(Session& session, int fd) : session_(session), fd_(fd), input_(fd, size_t{256} << 10) {}
  int run();  // until the client leaves; an Exit
  // Appends the names of the operations that succeeded, for the table of what has run on a device.
  void write_calls(const char* path) const;

 private:
  struct Request {
    FrameHeader frame;
    std::vector<char> payload;
  };
  bool read(void* out, size_t nbytes);
  int refuse(const std::string& reason);
  int handle(Request& request);
  bool answer(const FrameHeader& frame, int result, const Writer& outputs);
  bool execute_on_waiter(Request&& request);  // false when too many wait
  void watch();  // pings a silent client, ends the process of a dead one
  Session& session_;
  const int fd_;
  bool opened_ = false;
  std::atomic<bool> failed_{false};  // a waiting thread found a malformed request
  BufferedReader input_;
  std::atomic<uint64_t> heard_ns_{0};
  std::array<std::atomic<bool>, 0x1000> succeeded_{};
  uint64_t expected_ = 1, unacknowledged_frames_ = 0, unacknowledged_nbytes_ = 0;
};

}  // namespace umsh
