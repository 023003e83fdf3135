// Threads that wait for the device, so that the executing thread never does.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace umsh {

class Waiters {
 public:
  static constexpr unsigned kThreadsMax = 64;
  // Runs `work` on a waiting thread, in turn when all are busy. An honest client's window bounds what waits; nothing else does yet.
  void run(std::function<void()> work);

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::function<void()>> queue_;
  unsigned threads_ = 0, idle_ = 0;
};

}  // namespace umsh
