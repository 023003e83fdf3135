#include "server/executor.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "generated/serve.h"
#include "server/transfer.h"
#include "wire/socket.h"

namespace umsh {

namespace {

constexpr int kUnsupported = 801;
constexpr uint64_t kSecond = 1000000000u;

bool waits(Op op, const ServeEntry* entry) {
  if (op < kFirstDriverCall) return op == kOpRefreshCaptured || op == kOpMirrorDownload;
  // Freeing only notes it; the wait is the memory's own affair.
  return entry && (entry->flags & kServeBlocking) && entry->serve != serve_cuMemFree_v2;
}

int call(Session& s, Op op, const ServeEntry* entry, const std::vector<char>& payload, Writer& out) {
  Reader in(payload.data(), payload.size());
  if (op < kFirstDriverCall) return s.control(op, in, out);
  return entry && entry->serve ? entry->serve(s, in, out) : kUnsupported;
}

}  // namespace

bool Executor::read(void* out, size_t nbytes) {
  uint64_t fills = input_.fills();
  bool ok = input_.read(out, nbytes);
  if (input_.fills() != fills) heard_ns_ = monotonic_ns();
  return ok;
}

int Executor::refuse(const std::string& reason) {
  Writer bye;
  bye.u64(uint64_t(HelloStatus::kFailed));
  bye.text(reason.c_str());
  session_.writer.push(kOpGoodbye, bye);
  std::fprintf(stderr, "umsh-session: %s\n", reason.c_str());
  return kProtocolError;
}

// False when the payload was malformed: the session ends.
bool Executor::answer(const FrameHeader& frame, int result, const Writer& outputs) {
  if (result == kAnsweredLater) return true;
  if (result == kWireError || session_.broken()) return false;
  if (result == 0 && frame.op < succeeded_.size()) succeeded_[frame.op].store(true, std::memory_order_relaxed);
  if (frame.flags & kWantsReply) session_.writer.reply(frame.sequence, result, outputs);
  else if (result) session_.writer.failed(frame.sequence, result);
  return true;
}

bool Executor::execute_on_waiter(Request&& request) {
  auto shared = std::make_shared<Request>(std::move(request));
  return session_.waiters.run([this, shared, context = session_.context] {
    session_.enter_waiter(context);
    Writer out;
    const ServeEntry* entry = shared->frame.op < kFirstDriverCall ? nullptr : serve_entry(shared->frame.op);
    int result = call(session_, shared->frame.op, entry, shared->payload, out);
    if (answer(shared->frame, result, out) || failed_.exchange(true)) return;
    refuse("malformed request " + std::to_string(shared->frame.op));
    ::shutdown(fd_, SHUT_RD);  // wakes the reader, which ends the session
  }, shared->payload.size());
}

int Executor::handle(Request& request) {
  const FrameHeader& frame = request.frame;
  Reader in(request.payload.data(), request.payload.size());
  Writer out;
  int result;
  const ServeEntry* entry = frame.op < kFirstDriverCall ? nullptr : serve_entry(frame.op);
  if (frame.op >= kFirstDriverCall && !entry) return refuse("unknown operation " + std::to_string(frame.op));
  if (!opened_) {
    if (frame.op != kOpOpen) return refuse("the first request is to open the session");
    result = session_.open(in, out);
    opened_ = result == 0;
  } else if (frame.op == kOpDownload) {
    if (!(frame.flags & kWantsReply)) return refuse("a download that wants no reply");
    result = download(session_, in, frame.sequence);
  } else if (waits(frame.op, entry)) {
    return execute_on_waiter(std::move(request)) ? -1 : refuse("too many calls that wait for the device");
  } else {
    result = call(session_, frame.op, entry, request.payload, out);
  }
  if (answer(frame, result, out)) return -1;
  return refuse("malformed request: " + (entry ? std::string(entry->name) : "operation " + std::to_string(frame.op)));
}

int Executor::run() {
  heard_ns_ = monotonic_ns();
  std::thread([this] { watch(); }).detach();
  for (;;) {
    Request request;
    FrameHeader& frame = request.frame;
    if (!read(&frame, sizeof frame) || failed_) return failed_ ? kProtocolError : kClientLeft;
    if (frame.nbytes > kPayloadMax) return refuse("a frame of " + std::to_string(frame.nbytes) + " bytes");
    if (frame.sequence != expected_++) return refuse("request " + std::to_string(frame.sequence) + " out of order");
    if (frame.flags & ~uint16_t{kWantsReply}) return refuse("unknown flags of a frame");
    request.payload.resize(frame.nbytes);
    if (!read(request.payload.data(), frame.nbytes)) return failed_ ? kProtocolError : kClientLeft;
    count(session_.stats->calls, 1);
    count(session_.stats->bytes_in, sizeof frame + frame.nbytes);
    session_.stats->last_activity_ns.store(heard_ns_, std::memory_order_relaxed);
    if (frame.op == kOpGoodbye) return kClientLeft;
    session_.writer.set_executed(frame.sequence);
    unacknowledged_nbytes_ += sizeof frame + frame.nbytes;
    int exit = handle(request);
    if (exit >= 0) return exit;
    if (++unacknowledged_frames_ < kAckEveryFrames && unacknowledged_nbytes_ < kAckEveryBytes) continue;
    session_.writer.acknowledge();
    unacknowledged_frames_ = unacknowledged_nbytes_ = 0;
  }
}

void Executor::write_calls(const char* path) const {
  std::string names;
  for (size_t op = 0; op < succeeded_.size(); ++op) {
    if (!succeeded_[op]) continue;
    const ServeEntry* entry = op < kFirstDriverCall ? nullptr : serve_entry(Op(op));
    names += entry ? std::string(entry->name) : "operation " + std::to_string(op);
    names += '\n';
  }
  int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, names.data(), names.size()) < 0) std::perror("umsh-session: UMSH_SESSION_CALLS");
  if (file >= 0) close(file);
}

void Executor::watch() {
  for (;;) {
    sleep(1);
    uint64_t silent = monotonic_ns() - heard_ns_.load();
    // The executing thread may be busy with a call of its own: what waits in the socket was heard as well.
    char byte;
    if (silent > kPingSeconds * kSecond && recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) continue;
    if (silent > kDeadSeconds * kSecond) {
      std::fprintf(stderr, "umsh-session: nothing from the client for %u s\n", kDeadSeconds);
      _exit(kPeerDead);  // the driver gives back what the process held
    }
    if (silent > kPingSeconds * kSecond) session_.writer.ping();
  }
}

}  // namespace umsh
