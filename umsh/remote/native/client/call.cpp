#include "call.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "hooks.h"
#include "log.h"
#include "session.h"

namespace umsh {

// Nested calls happen (a call that first makes this thread's own stream): each level has its buffers.
struct CallSlot {
  Writer writer;
  Pending pending;
};

namespace {

constexpr unsigned kNesting = 6;
struct Slots {
  CallSlot slots[kNesting];
  unsigned depth = 0;
};
Slots& slots() {
  thread_local Slots mine;
  return mine;
}

bool nvml(Op op) { return op >= kFirstNvmlCall; }

// Objects made ahead of time in batches cost one round trip a batch; so do these, without making more than are used.
bool starts_batch(Op op) {
  constexpr unsigned kBatch = 32;
  static auto* counts = new std::array<std::atomic<unsigned>, 0x1000>{};
  return op < counts->size() && (*counts)[op].fetch_add(1, std::memory_order_relaxed) % kBatch == 0;
}

// Answers of cached calls, by operation and inputs.
struct Cache {
  static constexpr size_t kEntriesMax = size_t{1} << 16;
  std::mutex mutex;
  std::unordered_map<std::string, std::vector<char>> answers;
};
Cache& cache() {
  static auto* all = new Cache;
  return *all;
}
std::string cache_key(Op op, const Writer& writer) {
  uint64_t context = thread().current();
  std::string key(reinterpret_cast<const char*>(&op), sizeof op);
  key.append(reinterpret_cast<const char*>(&context), sizeof context);
  return key.append(writer.data(), writer.size());
}

}  // namespace

void forget_cached() {
  std::lock_guard<std::mutex> lock(cache().mutex);
  cache().answers.clear();
}

Call::Call(Op op) : info_(call_info(op)) {
  Slots& mine = slots();
  slot_ = &mine.slots[mine.depth < kNesting ? mine.depth : kNesting - 1];
  ++mine.depth;
  slot_->writer.clear();
  if (op >= kFirstDriverCall) error_ = nvml(op) ? (session() ? 0 : 1) : ready();
  if (!error_ && info_.needs_context) error_ = ready_in_context();
}

Call::~Call() { --slots().depth; }

Call& Call::u64(uint64_t value) {
  slot_->writer.u64(value);
  return *this;
}
Call& Call::device(uint64_t address) {
  if (!error_ && session()->mirror.inside(address)) mapped_ = address;
  return u64(address);
}
Call& Call::bits(const void* value, size_t nbytes) {
  uint64_t word = 0;
  std::memcpy(&word, value, nbytes);
  return u64(word);
}
Call& Call::blob(const void* data, uint64_t nbytes) {
  slot_->writer.blob(data, nbytes);
  return *this;
}
Call& Call::text(const char* s) {
  slot_->writer.text(s);
  return *this;
}

Call& Call::handle(Kind kind, const void* value) {
  auto number = reinterpret_cast<uint64_t>(value);
  if (error_) return u64(number);
  if (kind == kKindStream) {
    number = stream_of(value);
    streamed_ = true;
    stream_ = number;
  } else if (kind == kKindEvent) {
    event_ = number;
  }
  return u64(number);
}

uint64_t Call::make(Kind kind) {
  makes_ = true;
  uint64_t number = error_ ? 0 : session()->make(uint8_t(kind));
  if (kind == kKindStream && number) note_stream(number, thread().current());
  u64(number);
  return number;
}

int Call::lost_code() const { return nvml(info_.op) ? 999 : int(kDeviceUnavailable); }

int Call::before_send() {
  if (error_) return error_;
  if (slots().depth > kNesting || slot_->writer.size() > kPayloadMax) return nvml(info_.op) ? 2 : int(kInvalidValue);
  return mapped_ ? before_device_use(&mapped_, 1, stream_) : 0;
}

// The result of a reply; an earlier call's failure comes first, as the driver reports asynchronous errors.
int Call::answer(Pending& pending) {
  if (!nvml(info_.op)) return session()->result_of(pending);
  if (pending.lost) return lost_code();
  if (pending.header.deferred_result) session()->note_deferred(pending.header);
  return pending.header.result;
}

int Call::wait() {
  if (int error = before_send()) return error;
  Connection& connection = *session()->connection;
  Pending& pending = slot_->pending;
  pending.lost = false;
  pending.direct = nullptr;
  uint64_t context = nvml(info_.op) ? kSameContext : thread().current();
  if (connection.send(info_.op, slot_->writer.data(), slot_->writer.size(), context, &pending) == 0) return lost_code();
  pending.wait();
  return answer(pending);
}

int Call::status() {
  if (int error = before_send()) return error;
  Session& s = *session();
  bool control = info_.op < kFirstDriverCall;
  bool sent_only = control || info_.kind == CallClass::kAsync || info_.kind == CallClass::kPrefetch;
  if (makes_ && !s.on.shadow) sent_only = s.on.prefetch && !starts_batch(info_.op);
  else if (!s.on.async) sent_only = false;
  if (info_.sets_attribute) forget_cached();
  if (!sent_only) return wait();
  uint64_t context = nvml(info_.op) ? kSameContext : thread().current();
  uint64_t sequence = s.connection->send(info_.op, slot_->writer.data(), slot_->writer.size(), context);
  if (sequence == 0) return lost_code();
  if (streamed_) s.progress.worked(stream_, sequence);
  if (info_.records_event) s.progress.recorded(event_, stream_, sequence);
  return 0;
}

Reply Call::reply() {
  Reply reply;
  bool cached = info_.kind == CallClass::kCached && !error_ && session()->on.local;
  std::string key;
  if (cached) {
    key = cache_key(info_.op, slot_->writer);
    std::lock_guard<std::mutex> lock(cache().mutex);
    auto it = cache().answers.find(key);
    if (it != cache().answers.end()) {
      reply.payload_ = it->second;
      reply.reader_ = Reader(reply.payload_.data(), reply.payload_.size());
      return reply;
    }
  }
  reply.result = wait();
  if (error_ || slot_->pending.lost) return reply;
  reply.payload_.swap(slot_->pending.payload);
  reply.reader_ = Reader(reply.payload_.data(), reply.payload_.size());
  if (streamed_) session()->progress.worked(stream_, session()->connection->sent());
  if (cached && reply.result == 0) {
    std::lock_guard<std::mutex> lock(cache().mutex);
    if (cache().answers.size() < Cache::kEntriesMax) cache().answers[key] = reply.payload_;
  }
  return reply;
}

int local_call() {
  int error = ready();
  if (error || session()->on.local) return error;
  return Call(kOpPing).wait();
}

int local_call_in_context() {
  int error = local_call();
  if (error) return error;
  return thread().current() ? kSuccess : kInvalidContext;
}

}  // namespace umsh
