#include "downloads.h"

namespace umsh {

uint64_t Downloads::add(void* to, uint64_t nbytes, bool captured) {
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t cookie = next_++;
  all_[cookie] = {static_cast<char*>(to), nbytes, captured};
  ++(captured ? captured_ : outstanding_);
  return cookie;
}

void Downloads::remove(uint64_t cookie) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = all_.find(cookie);
  if (it == all_.end()) return;
  --(it->second.captured ? captured_ : outstanding_);
  all_.erase(it);
  changed_.notify_all();
}

void* Downloads::place(uint64_t cookie, uint64_t offset, uint64_t nbytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = all_.find(cookie);
  if (it == all_.end() || nbytes > it->second.nbytes || offset > it->second.nbytes - nbytes) return nullptr;
  return it->second.to + offset;
}

void Downloads::arrived(uint64_t cookie) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = all_.find(cookie);
    if (it == all_.end() || it->second.captured) return;
  }
  remove(cookie);
}

void Downloads::lost() {
  std::lock_guard<std::mutex> lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

bool Downloads::overlaps_locked(const void* from, uint64_t nbytes) const {
  const char* begin = static_cast<const char*>(from);
  for (const auto& entry : all_) {
    const Download& d = entry.second;
    if (!d.captured && d.to < begin + nbytes && begin < d.to + d.nbytes) return true;
  }
  return false;
}

bool Downloads::overlaps(const void* from, uint64_t nbytes) const {
  if (outstanding_.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return overlaps_locked(from, nbytes);
}

void Downloads::wait_for(const void* from, uint64_t nbytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return lost_ || !overlaps_locked(from, nbytes); });
}

}  // namespace umsh
