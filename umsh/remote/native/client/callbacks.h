// Host functions: the server says when a stream has reached one, a thread of this process runs it and reports back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace umsh {

class Callbacks {
 public:
  using Function = std::function<void(int status)>;
  // A captured function stays: every replay of its graph runs it.
  uint64_t add(Function function, bool captured);
  void remove(uint64_t token);
  void call(uint64_t token, int status);  // from the reader thread
  bool none() const { return outstanding_.load(std::memory_order_acquire) == 0; }
  bool any_captured() const { return captured_.load(std::memory_order_acquire) != 0; }

 private:
  struct Entry {
    Function function;
    bool captured;
  };
  void run();
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::unordered_map<uint64_t, Entry> all_;
  std::deque<std::pair<uint64_t, int>> called_;
  bool started_ = false;
  uint64_t next_ = 1;
  std::atomic<uint64_t> outstanding_{0}, captured_{0};
};

}  // namespace umsh
