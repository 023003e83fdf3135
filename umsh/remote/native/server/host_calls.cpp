#include "server/host_calls.h"

namespace umsh {

void HostCalls::call(uint64_t token) {
  Writer request;
  request.u64(token);
  request.u64(0);
  std::unique_lock<std::mutex> lock(mutex_);
  unsigned mine = waiting_[token]++;  // calls of one token are answered in turn
  writer_.push(kOpHostCall, request);
  answered_.wait(lock, [&] { return waiting_[token] <= mine; });
  if (waiting_[token] == 0) waiting_.erase(token);
}

void HostCalls::done(uint64_t token) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = waiting_.find(token);
  if (it == waiting_.end() || it->second == 0) return;
  --it->second;
  answered_.notify_all();
}

}  // namespace umsh
