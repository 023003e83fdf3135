#include "server/waiters.h"

#include <thread>

namespace umsh {

void Waiters::run(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(work));
  if (idle_ < queue_.size() && threads_ < kThreadsMax) {
    ++threads_;
    std::thread([this] { loop(); }).detach();
  }
  wanted_.notify_one();
}

void Waiters::loop() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++idle_;
      wanted_.wait(lock, [this] { return !queue_.empty(); });
      --idle_;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace umsh
