// One call to the server: its inputs in order, then its status or its reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../generated/kinds.h"
#include "../generated/ops.h"
#include "../wire/codec.h"
#include "classes.h"
#include "export.h"

namespace umsh {

class Pending;
struct CallSlot;  // buffers of one call in progress on this thread, kept for the next

// The outputs of a call, read in the order of its prototype.
class UMSH_SHARED Reply {
 public:
  int result = 0;
  bool u64(void* out, size_t nbytes);           // 1, 2, 4 or 8 bytes; `out` may be null: read and dropped
  bool bytes(void* out, size_t nbytes);         // a blob of exactly this size; a null blob leaves `out` as it is
  uint64_t blob(void* out, uint64_t capacity);  // copies at most `capacity` bytes, returns the blob's length
  uint64_t u64() { return reader_.u64(); }
  Blob view() { return reader_.blob(); }        // valid while this reply is
  bool ok() const { return reader_.ok(); }
  bool empty() const { return payload_.empty(); }  // an error came without outputs

 private:
  friend class Call;
  std::vector<char> payload_;
  Reader reader_{nullptr, 0};
};

class UMSH_SHARED Call {
 public:
  explicit Call(Op op);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Call& u64(uint64_t value);
  Call& f64(double value) { return bits(&value, sizeof value); }
  Call& f32(float value) { return bits(&value, sizeof value); }
  Call& blob(const void* data, uint64_t nbytes);
  Call& text(const char* s);
  // A device pointer that the call uses: mapped host memory is first made visible to the device.
  Call& device(uint64_t address);
  // A handle as the program gave it; streams are mapped (this thread's own stream) and their progress is noted.
  Call& handle(Kind kind, const void* value);
  // Appends the handle of a new object and returns it.
  uint64_t make(Kind kind);

  int status();   // a call without outputs: sent, or waited for, by its class and the mode
  Reply reply();  // waits for the reply; a cached call asks once
  int wait();     // status of a call that always waits

 private:
  Call& bits(const void* value, size_t nbytes);
  int before_send();
  int answer(Pending& pending);
  int lost_code() const;
  const CallInfo& info_;
  CallSlot* slot_;
  int error_ = 0;
  bool makes_ = false;
  bool streamed_ = false;
  uint64_t stream_ = 0;
  uint64_t event_ = 0;
  uint64_t mapped_ = 0;  // a device pointer into mapped memory
};

inline bool Reply::u64(void* out, size_t nbytes) {
  uint64_t value = reader_.u64();
  if (!reader_.ok()) return false;
  if (out) std::memcpy(out, &value, nbytes);
  return true;
}
inline bool Reply::bytes(void* out, size_t nbytes) {
  Blob blob = reader_.blob();
  if (!reader_.ok() || (blob.data && blob.nbytes != nbytes)) return false;
  if (blob.data && out) std::memcpy(out, blob.data, nbytes);
  return true;
}
inline uint64_t Reply::blob(void* out, uint64_t capacity) {
  Blob blob = reader_.blob();
  uint64_t n = blob.nbytes < capacity ? blob.nbytes : capacity;
  if (blob.data && out && n) std::memcpy(out, blob.data, n);
  return blob.nbytes;
}

// For exports that name the per-thread default stream: 0 means that one.
inline void* ptsz(void* stream) { return stream == nullptr ? reinterpret_cast<void*>(uintptr_t{2}) : stream; }

// For calls that this end answers: kSuccess, or why no call can be made. In modes without local answers it costs the
// round trip that forwarding the call would.
int local_call();
int local_call_in_context();

// Forgets what cached calls answered: an attribute was set.
void forget_cached();

}  // namespace umsh
