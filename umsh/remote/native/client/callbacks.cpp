#include "callbacks.h"

#include <thread>

#include "session.h"

namespace umsh {

uint64_t Callbacks::add(Function function, bool captured) {
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t token = next_++;
  all_[token] = {std::move(function), captured};
  ++(captured ? captured_ : outstanding_);
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  return token;
}

void Callbacks::remove(uint64_t token) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = all_.find(token);
  if (it == all_.end()) return;
  --(it->second.captured ? captured_ : outstanding_);
  all_.erase(it);
}

void Callbacks::call(uint64_t token, int status) {
  std::lock_guard<std::mutex> lock(mutex_);
  called_.emplace_back(token, status);
  wanted_.notify_one();
}

void Callbacks::run() {
  for (;;) {
    uint64_t token;
    int status;
    Function function;
    bool captured = true;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wanted_.wait(lock, [this] { return !called_.empty(); });
      std::tie(token, status) = called_.front();
      called_.pop_front();
      auto it = all_.find(token);
      if (it != all_.end()) {
        function = it->second.function;
        captured = it->second.captured;
      }
    }
    if (function) function(status);
    Connection& connection = *session()->connection;
    connection.send(kOpHostCallDone, &token, sizeof token, kSameContext, nullptr, true);
    connection.flush();
    if (!captured) remove(token);
  }
}

}  // namespace umsh
