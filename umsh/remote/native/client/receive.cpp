// Receiving: replies go to who waits for them, downloads to their memory, the rest to the receiver.
#include "connection.h"

#include <cerrno>
#include <cstring>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "../wire/codec.h"
#include "../wire/socket.h"

namespace umsh {

void Connection::read_loop() {
  prctl(PR_SET_NAME, "umsh-read");
  while (read_frame()) {
  }
  lose(closing_ ? "" : "the server closed it, or sent nothing for " + std::to_string(kDeadSeconds) + " s");
}

bool Connection::skip(size_t nbytes) {
  char bin[4096];
  while (nbytes > 0) {
    size_t n = nbytes < sizeof bin ? nbytes : sizeof bin;
    if (!input_.read(bin, n)) return false;
    nbytes -= n;
  }
  return true;
}

bool Connection::read_frame() {
  FrameHeader header;
  if (!input_.read(&header, sizeof header) || header.nbytes > kPayloadMax) return false;
  if (header.flags & kIsReply) return read_reply(header);
  if (header.op == kOpHostWrite) return read_host_write(header);
  return read_control(header);
}

// A blob reply that is wanted in place: its length, then its bytes straight to where they belong.
static bool fits_direct(const Pending& waiter, uint64_t nbytes, uint64_t left) {
  return nbytes <= waiter.direct_capacity && padded(nbytes) == left;
}

bool Connection::read_reply(const FrameHeader& frame) {
  ReplyHeader header;
  if (frame.nbytes < sizeof header || !input_.read(&header, sizeof header)) return false;
  size_t left = frame.nbytes - sizeof header;
  acknowledge(header.executed);
  Pending* waiter = nullptr;
  {
    std::lock_guard<std::mutex> lock(pending_mutex_);
    auto it = pending_.find(frame.sequence);
    if (it != pending_.end()) {
      waiter = it->second;
      pending_.erase(it);
    }
  }
  if (!waiter) return skip(left);
  waiter->header = header;
  bool ok = true;
  if (waiter->direct && left >= 8) {
    uint64_t nbytes = 0;
    ok = input_.read(&nbytes, sizeof nbytes);
    left -= sizeof nbytes;
    if (nbytes != kNullBlob) {
      ok = ok && fits_direct(*waiter, nbytes, left) && input_.read(waiter->direct, nbytes) && skip(left - nbytes);
      waiter->direct_nbytes = ok ? nbytes : 0;
    }
  } else {
    waiter->payload.resize(left);
    ok = input_.read(waiter->payload.data(), left);
  }
  waiter->lost = !ok;
  waiter->arrive();
  return ok;
}

bool Connection::read_host_write(const FrameHeader& frame) {
  struct { uint64_t cookie, offset, last, nbytes; } head;
  if (frame.nbytes < sizeof head || !input_.read(&head, sizeof head)) return false;
  size_t left = frame.nbytes - sizeof head;
  if (head.nbytes != kNullBlob) {
    if (head.nbytes > left || padded(head.nbytes) != left) return false;
    void* to = receiver_->host_write(head.cookie, head.offset, head.nbytes);
    if (to ? !input_.read(to, head.nbytes) || !skip(left - head.nbytes) : !skip(left)) return false;
  }
  if (head.last) receiver_->host_written(head.cookie);
  return true;
}

bool Connection::read_control(const FrameHeader& frame) {
  control_.resize(frame.nbytes);
  if (!input_.read(control_.data(), frame.nbytes)) return false;
  Reader in(control_.data(), frame.nbytes);
  switch (frame.op) {
    case kOpAck:
      acknowledge(in.u64());
      return in.ok();
    case kOpPing: {
      // Only queued here: the reader never waits for the socket's other direction.
      std::unique_lock<std::mutex> lock(queue_mutex_);
      append(lock, kOpPong, 0, nullptr, 0, 0);
      flusher_idle_ = false;
      flusher_wanted_.notify_one();
      return true;
    }
    case kOpPong:
      return true;
    case kOpHostCall: {
      uint64_t token = in.u64(), status = in.u64();
      if (in.ok()) receiver_->host_call(token, int(status));
      return in.ok();
    }
    case kOpGoodbye: {
      in.u64();
      std::string why;
      in.text(why);
      lose(why.empty() ? "the server said goodbye" : why);
      return false;
    }
    default:
      return false;
  }
}

}  // namespace umsh
