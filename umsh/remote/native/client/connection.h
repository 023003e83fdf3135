// The one connection of a process: an ordered send queue, replies by number, and what the server sends by itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <semaphore.h>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../wire/frame.h"
#include "../wire/ops.h"
#include "../wire/socket.h"
#include "settings.h"

namespace umsh {

// A request that waits for its reply. With `direct`, a blob reply goes straight to that memory.
class Pending {
 public:
  Pending() { sem_init(&arrived_, 0, 0); }
  ~Pending() { sem_destroy(&arrived_); }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  void wait();
  void arrive() { sem_post(&arrived_); }

  ReplyHeader header{};
  bool lost = false;              // the connection ended first
  std::vector<char> payload;      // outputs of the call, unless direct
  void* direct = nullptr;
  uint64_t direct_capacity = 0;
  uint64_t direct_nbytes = 0;     // what arrived there

 private:
  sem_t arrived_;
};

// Called on the reader thread; must not wait.
struct Receiver {
  virtual ~Receiver() = default;
  // Where bytes of an asynchronous download go, or null when they are not expected.
  virtual void* host_write(uint64_t cookie, uint64_t offset, uint64_t nbytes) = 0;
  virtual void host_written(uint64_t cookie) = 0;  // the last piece has arrived
  virtual void host_call(uint64_t token, int status) = 0;
  virtual void lost(const std::string& reason) = 0;
};

constexpr uint64_t kSameContext = ~uint64_t{0};  // for requests that need no context

class Connection {
 public:
  // Connects and says hello; null with the reason in `error`.
  static std::unique_ptr<Connection> open(const Settings& settings, std::string& error);
  ~Connection();

  void start(Receiver* receiver);  // threads of the reader and of the flusher
  // Queues a request; `context` is the caller's current context. Returns its number, 0 when the connection is lost.
  // `waiter` (if any) gets the reply. `urgent` requests do not wait for the window: others' progress hangs on them.
  uint64_t send(Op op, const void* payload, size_t nbytes, uint64_t context, Pending* waiter = nullptr, bool urgent = false);
  // The same with `data` after the payload, written from where it is.
  uint64_t send_with(Op op, const void* payload, size_t nbytes, const void* data, size_t data_nbytes, uint64_t context,
                     Pending* waiter = nullptr);
  void flush();
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  Op op_of(uint64_t sequence);   // of a recent request, for messages
  uint64_t sent() const { return next_.load(std::memory_order_relaxed); }
  uint64_t round_trips() const { return round_trips_.load(std::memory_order_relaxed); }
  void goodbye();                // at exit: what is queued, then the end
  void abandon();                // in a forked child: the parent's socket is closed, untouched

 private:
  explicit Connection(int fd) : fd_(fd) {}
  bool say_hello(const Settings& settings, std::string& error);
  bool room(size_t nbytes) const;
  uint64_t append(std::unique_lock<std::mutex>& lock, Op op, uint16_t flags, const void* payload, size_t nbytes,
                  size_t more);
  uint64_t enter(std::unique_lock<std::mutex>& lock, Op op, const void* payload, size_t nbytes, size_t more,
                 uint64_t context, Pending* waiter);
  bool wait_for_room(std::unique_lock<std::mutex>& lock, size_t nbytes);
  void flush_loop();
  void read_loop();
  bool read_frame();
  bool read_reply(const FrameHeader& header);
  bool read_host_write(const FrameHeader& header);
  bool read_control(const FrameHeader& header);
  bool skip(size_t nbytes);
  void acknowledge(uint64_t executed);
  void lose(const std::string& reason);

  int fd_;
  Receiver* receiver_ = nullptr;
  std::atomic<bool> lost_{false};
  std::atomic<bool> closing_{false};

  std::mutex write_mutex_;   // taken before queue_mutex_; keeps writes in the order of the queue
  std::vector<char> writing_;

  std::mutex queue_mutex_;
  std::vector<char> queue_;
  std::condition_variable window_changed_, flusher_wanted_;
  bool flusher_idle_ = true;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> round_trips_{0};
  uint64_t executed_ = 0;
  uint64_t sent_nbytes_ = 0, executed_nbytes_ = 0;
  uint64_t last_context_ = 0;
  std::vector<uint64_t> nbytes_until_ = std::vector<uint64_t>(kWindowFrames);  // by sequence modulo the window
  std::vector<Op> ops_ = std::vector<Op>(kWindowFrames);

  std::mutex pending_mutex_;
  std::unordered_map<uint64_t, Pending*> pending_;

  BufferedReader input_{fd_, size_t{64} << 10};
  std::vector<char> control_;
  std::thread reader_, flusher_;
};

}  // namespace umsh
