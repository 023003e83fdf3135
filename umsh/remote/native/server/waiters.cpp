#include "server/waiters.h"

#include <thread>

namespace umsh {

bool Waiters::run(std::function<void()> work, size_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.size() >= kQueueMax || nbytes > kBytesMax - nbytes_) return false;
  nbytes_ += nbytes;
  queue_.push_back({std::move(work), nbytes});
  if (idle_ < queue_.size() && threads_ < kThreadsMax) {
    ++threads_;
    std::thread([this] { loop(); }).detach();
  }
  wanted_.notify_one();
  return true;
}

void Waiters::loop() {
  for (;;) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++idle_;
      wanted_.wait(lock, [this] { return !queue_.empty(); });
      --idle_;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work.run();
    work.run = nullptr;  // what it holds is gone before it is counted so
    std::lock_guard<std::mutex> lock(mutex_);
    nbytes_ -= work.nbytes;
  }
}

}  // namespace umsh
