// Sending: the queue, its window, who writes it and when.
#include "connection.h"

#include <cerrno>
#include <cstring>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../wire/codec.h"
#include "../wire/socket.h"

namespace umsh {

namespace {

constexpr size_t kQueueBytes = kFlushBytes + (size_t{8} << 10);
constexpr uint64_t kWindowReserve = 1024;  // for requests that do not wait for the window
constexpr unsigned kIdleRounds = 40;  // empty rounds of the flusher before it sleeps until it is woken

void put(std::vector<char>& out, const void* data, size_t nbytes) {
  const char* bytes = static_cast<const char*>(data);
  out.insert(out.end(), bytes, bytes + nbytes);
}

}  // namespace

void Pending::wait() {
  while (sem_wait(&arrived_) != 0) {
  }
}

void Connection::start(Receiver* receiver) {
  receiver_ = receiver;
  queue_.reserve(kQueueBytes);
  writing_.reserve(kQueueBytes);
  reader_ = std::thread([this] { read_loop(); });
  flusher_ = std::thread([this] { flush_loop(); });
  // They live as long as the process; a program that ends by exit() must not wait for them.
  reader_.detach();
  flusher_.detach();
}

bool Connection::room(size_t nbytes) const {
  if (next_ - executed_ + kWindowReserve > kWindowFrames) return false;
  uint64_t waiting = sent_nbytes_ - executed_nbytes_;
  return waiting == 0 || waiting + nbytes <= kWindowBytes;
}

uint64_t Connection::append(std::unique_lock<std::mutex>&, Op op, uint16_t flags, const void* payload, size_t nbytes,
                            size_t more) {
  uint64_t sequence = next_.load(std::memory_order_relaxed) + 1;
  next_.store(sequence, std::memory_order_relaxed);
  FrameHeader header{uint32_t(nbytes + more), op, flags, sequence};
  sent_nbytes_ += sizeof header + nbytes + more;
  nbytes_until_[sequence % kWindowFrames] = sent_nbytes_;
  ops_[sequence % kWindowFrames] = op;
  put(queue_, &header, sizeof header);
  put(queue_, payload, nbytes);
  return sequence;
}

// The part of sending that holds the queue's lock: changes the context, numbers the request.
uint64_t Connection::enter(std::unique_lock<std::mutex>& lock, Op op, const void* payload, size_t nbytes, size_t more,
                           uint64_t context, Pending* waiter) {
  if (lost()) return 0;
  if (context != last_context_ && context != kSameContext) {
    append(lock, kOpContext, 0, &context, sizeof context, 0);
    last_context_ = context;
  }
  uint64_t sequence = append(lock, op, waiter ? uint16_t(kWantsReply) : uint16_t(0), payload, nbytes, more);
  if (waiter) {
    round_trips_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard<std::mutex> pending(pending_mutex_);
    if (lost()) return 0;  // lose() has already told who was waiting
    pending_[sequence] = waiter;
  }
  return sequence;
}

// Leaves the lock while it waits: the queue is written first, since only the server's progress makes room, and the
// reply of a ping at its end tells of that progress at the latest.
bool Connection::wait_for_room(std::unique_lock<std::mutex>& lock, size_t nbytes) {
  while (!lost() && !room(nbytes)) {
    uint64_t last = append(lock, kOpPing, kWantsReply, nullptr, 0, 0);
    lock.unlock();
    flush();
    lock.lock();
    window_changed_.wait(lock, [&] { return lost() || room(nbytes) || executed_ >= last; });
  }
  return !lost();
}

uint64_t Connection::send(Op op, const void* payload, size_t nbytes, uint64_t context, Pending* waiter, bool urgent) {
  bool full, wake;
  uint64_t sequence;
  {
    std::unique_lock<std::mutex> lock(queue_mutex_);
    if (!urgent && !room(nbytes) && !wait_for_room(lock, nbytes)) return 0;
    sequence = enter(lock, op, payload, nbytes, 0, context, waiter);
    if (sequence == 0) return 0;
    full = queue_.size() >= kFlushBytes || waiter;
    wake = !full && flusher_idle_;
    if (wake) flusher_idle_ = false;
  }
  if (full) flush();
  else if (wake) flusher_wanted_.notify_one();
  return sequence;
}

uint64_t Connection::send_with(Op op, const void* payload, size_t nbytes, const void* data, size_t data_nbytes,
                               uint64_t context, Pending* waiter) {
  static constexpr char zeros[8] = {};
  size_t padding = padded(data_nbytes) - data_nbytes;
  {  // room first: the write lock must not be held while waiting for it
    std::unique_lock<std::mutex> lock(queue_mutex_);
    if (!wait_for_room(lock, nbytes + data_nbytes)) return 0;
  }
  std::lock_guard<std::mutex> write(write_mutex_);
  uint64_t sequence;
  {
    std::unique_lock<std::mutex> lock(queue_mutex_);
    sequence = enter(lock, op, payload, nbytes, data_nbytes + padding, context, waiter);
    if (sequence == 0) return 0;
    writing_.swap(queue_);
  }
  iovec parts[] = {{writing_.data(), writing_.size()},
                   {const_cast<void*>(data), data_nbytes},
                   {const_cast<char*>(zeros), padding}};
  if (!write_all(fd_, parts, 3)) lose("the connection broke while sending");
  writing_.clear();
  return sequence;
}

void Connection::flush() {
  std::lock_guard<std::mutex> write(write_mutex_);
  {
    std::lock_guard<std::mutex> lock(queue_mutex_);
    if (queue_.empty()) return;
    writing_.swap(queue_);
  }
  if (!lost() && !write_all(fd_, writing_.data(), writing_.size())) lose("the connection broke while sending");
  writing_.clear();
}

// Writes what has waited for kFlushMicros. It sleeps only after a while without work: waking it costs a caller more
// than all the rest of an asynchronous call.
void Connection::flush_loop() {
  prctl(PR_SET_NAME, "umsh-flush");
  prctl(PR_SET_TIMERSLACK, 1000ul);
  unsigned idle_rounds = 0;
  while (!lost()) {
    {
      std::unique_lock<std::mutex> lock(queue_mutex_);
      bool empty = queue_.empty();
      idle_rounds = empty ? idle_rounds + 1 : 0;
      if (idle_rounds >= kIdleRounds) {
        flusher_idle_ = true;
        flusher_wanted_.wait(lock, [this] { return !flusher_idle_ || lost(); });
        idle_rounds = 0;
      }
    }
    usleep(kFlushMicros);
    flush();
  }
}

void Connection::acknowledge(uint64_t executed) {
  std::lock_guard<std::mutex> lock(queue_mutex_);
  if (executed <= executed_ || executed > next_) return;
  executed_ = executed;
  executed_nbytes_ = nbytes_until_[executed % kWindowFrames];
  window_changed_.notify_all();
}

Op Connection::op_of(uint64_t sequence) {
  std::lock_guard<std::mutex> lock(queue_mutex_);
  bool recent = sequence > 0 && sequence <= next_ && next_ - sequence < kWindowFrames;
  return recent ? ops_[sequence % kWindowFrames] : Op{0};
}

void Connection::lose(const std::string& reason) {
  if (lost_.exchange(true)) return;
  ::shutdown(fd_, SHUT_RDWR);
  if (receiver_ && !closing_) receiver_->lost(reason);
  {
    std::lock_guard<std::mutex> lock(queue_mutex_);
    flusher_idle_ = false;
    window_changed_.notify_all();
    flusher_wanted_.notify_all();
  }
  std::lock_guard<std::mutex> pending(pending_mutex_);
  for (auto& entry : pending_) {
    entry.second->lost = true;
    entry.second->arrive();
  }
  pending_.clear();
}

void Connection::goodbye() {
  closing_ = true;
  if (lost()) return;
  Writer writer;
  writer.u64(0);
  writer.blob(nullptr, 0);
  send(kOpGoodbye, writer.data(), writer.size(), kSameContext, nullptr, true);
  // A server that reads no more must not keep the program from ending.
  timeval limit{2, 0};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  flush();
}

void Connection::abandon() {
  ::close(fd_);
  fd_ = -1;
  lost_ = true;
}

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace umsh
