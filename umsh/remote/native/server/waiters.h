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
  static constexpr size_t kQueueMax = 4096;
  static constexpr size_t kBytesMax = size_t{256} << 20;
  // Runs `work`, which holds `nbytes`, on a waiting thread, in turn when all are busy. False when too much waits: an
  // honest client has a thread in each of these calls. The caller cannot wait for room, since what is waited for may be a
  // later request.
  [[nodiscard]] bool run(std::function<void()> work, size_t nbytes = 0);

 private:
  struct Work {
    std::function<void()> run;
    size_t nbytes;
  };
  void loop();
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<Work> queue_;
  size_t nbytes_ = 0;  // of what waits and what runs
  unsigned threads_ = 0, idle_ = 0;
};

}  // namespace umsh
