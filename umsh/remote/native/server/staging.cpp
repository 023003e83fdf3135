#include "server/staging.h"

#include <utility>

#include "server/decode.h"

namespace umsh {

namespace {
constexpr int kUnsupported = 801;
constexpr unsigned kNoTiming = 2;
}  // namespace

void StagingPool::reclaim() {
  // In the order they were given: another stream's work may be done before, and is found a little later.
  while (!busy_.empty() && invoke(driver_.cuEventQuery, kUnsupported, busy_.front().event) == 0) {
    events_.push_back(busy_.front().event);
    give(busy_.front().buffer);
    busy_.pop_front();
  }
}

StagingPool::Buffer StagingPool::take(uint64_t nbytes) {
  Buffer buffer;
  while (buffer.size_class < kClasses && capacity_of(buffer.size_class) < nbytes) ++buffer.size_class;
  if (buffer.size_class == kClasses) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  reclaim();
  buffer.data = take_free(buffer.size_class);
  if (buffer.data) return buffer;
  uint64_t capacity = capacity_of(buffer.size_class);
  if (nbytes_ + capacity > kBytesMax) return {};
  buffer.error = invoke(driver_.cuMemHostAlloc, kUnsupported, &buffer.data, capacity, 0u);
  if (buffer.error) buffer.data = nullptr;
  else nbytes_ += capacity;
  return buffer;
}

void* StagingPool::take_free(unsigned size_class) {
  std::lock_guard<std::mutex> lock(free_mutex_);
  auto& free = free_[size_class];
  if (free.empty()) return nullptr;
  void* data = free.back();
  free.pop_back();
  idle_nbytes_ -= capacity_of(size_class);
  return data;
}

void StagingPool::give(Buffer buffer) {
  std::lock_guard<std::mutex> lock(free_mutex_);
  free_[buffer.size_class].push_back(buffer.data);
  idle_nbytes_ += capacity_of(buffer.size_class);
}

bool StagingPool::excess() {
  std::lock_guard<std::mutex> lock(free_mutex_);
  return idle_nbytes_ > kIdleBytesMax;
}

void StagingPool::trim() {
  std::vector<void*> unused;
  uint64_t nbytes = 0;
  {
    std::lock_guard<std::mutex> lock(free_mutex_);
    for (auto& free : free_) {
      unused.insert(unused.end(), free.begin(), free.end());
      free.clear();
    }
    std::swap(nbytes, idle_nbytes_);
  }
  for (void* data : unused) invoke(driver_.cuMemFreeHost, kUnsupported, data);
  std::lock_guard<std::mutex> lock(mutex_);
  nbytes_ -= nbytes;
}

int StagingPool::give_after(Buffer buffer, void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  void* event = nullptr;
  int error = 0;
  if (!events_.empty()) {
    event = events_.back();
    events_.pop_back();
  } else {
    error = invoke(driver_.cuEventCreate, kUnsupported, &event, kNoTiming);
  }
  if (!error) error = invoke(driver_.cuEventRecord, kUnsupported, event, stream);
  if (error) return error;  // the buffer is lost rather than used too early
  busy_.push_back({buffer, event});
  return 0;
}

void* StagingPool::keep(uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  void* data = nullptr;
  if (nbytes > kBytesMax - nbytes_ || invoke(driver_.cuMemHostAlloc, kUnsupported, &data, nbytes, 0u) != 0) return nullptr;
  nbytes_ += nbytes;
  return data;
}

}  // namespace umsh
