#include "session.h"

#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

#include "call.h"
#include "log.h"

namespace umsh {

namespace {

// Where both ends try to have the same addresses: device memory, and behind it memory of the host that kernels see.
// The last is for processes that may not use far addresses (a thread sanitizer's, or a limit on address space).
struct Windows {
  uint64_t base, nbytes;
};
constexpr Windows kWindows[] = {
    {0x200000000000, uint64_t{1} << 40},
    {0x240000000000, uint64_t{1} << 40},
    {0x280000000000, uint64_t{1} << 40},
    {0x002000000000, uint64_t{1} << 37},
};

enum class State : int { kFresh, kConnected, kInitialised, kForked };
std::atomic<State> state{State::kFresh};
std::atomic<Session*> the_session{nullptr};
std::mutex connecting;
int connect_result = kSuccess;
bool tried = false;

// A child has no session: its threads are gone and the connection is its parent's. One that had none connects itself.
void in_child() {
  if (state == State::kFresh) return;
  state = State::kForked;
  if (Session* s = the_session.exchange(nullptr)) s->connection->abandon();
}

void at_exit() {
  if (Session* s = session()) s->connection->goodbye();
}

void* hold(uint64_t address, uint64_t nbytes) {
  void* at = mmap(reinterpret_cast<void*>(address), nbytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (reinterpret_cast<uint64_t>(at) == address) return at;
  munmap(at, nbytes);
  return nullptr;
}

int connect_locked() {
  Settings settings = read_settings();
  std::string error = settings.error;
  std::unique_ptr<Connection> connection = error.empty() ? Connection::open(settings, error) : nullptr;
  if (!connection) {
    say("no device: cannot use " + settings.server + ": " + error);
    return kNoDevice;
  }
  auto* made = new Session(settings, std::move(connection));
  the_session = made;
  state = State::kConnected;
  if (!made->open(error)) {
    say("no device: " + settings.server + ": " + error);
    return kNoDevice;
  }
  pthread_atfork(nullptr, nullptr, in_child);
  std::atexit(at_exit);
  return made->snapshot.devices.empty() ? kNoDevice : kSuccess;
}

}  // namespace

// Errors after which the driver's documentation leaves only ending the process or resetting the context.
static bool ends_context(int result) {
  constexpr int kIllegalAddress = 700, kLaunchTimeout = 702, kAssert = 710, kStackError = 714, kLaunchFailed = 719;
  return result == kIllegalAddress || result == kLaunchTimeout || result == kAssert ||
         (result >= kStackError && result <= kLaunchFailed);
}

Session::Session(const Settings& s, std::unique_ptr<Connection> c)
    : settings(s), on(settings.switches), connection(std::move(c)) {}

// The device window is only held here, so that nothing of this process takes its addresses.
int Session::agree(uint64_t base, uint64_t nbytes, Reply& reply) {
  void* window = hold(base, nbytes);
  void* host = window ? hold(base + nbytes, nbytes) : nullptr;
  int result = kNotSupported;
  if (host) {
    reply = Call(kOpOpen).u64(base).u64(nbytes).u64(base + nbytes).u64(nbytes).u64(0).reply();
    result = reply.result;
  }
  if (result == kSuccess) {
    window_base = base;
    mirror_base = base + nbytes;
    mirror.reset(mirror_base, nbytes);
    return kSuccess;
  }
  if (window) munmap(window, nbytes);
  if (host) munmap(host, nbytes);
  return result;
}

bool Session::open(std::string& error) {
  connection->start(this);
  Reply reply;
  int result = kNotSupported;
  for (const Windows& windows : kWindows)
    if (result == kNotSupported) result = agree(windows.base, windows.nbytes, reply);
  if (result) {
    error = "no session there (result " + std::to_string(result) + ")";
    if (result == kNotSupported) error = "both ends found no range of addresses that is free in each";
    return false;
  }
  Blob description = reply.view();
  Reader in(description.data, description.nbytes);
  if (!decode_snapshot(in, snapshot)) {
    error = "its description of the devices is malformed";
    return false;
  }
  return true;
}

void Session::note_deferred(const ReplyHeader& header) {
  int none = 0;
  deferred_.compare_exchange_strong(none, header.deferred_result);
  const CallInfo& info = call_info(connection->op_of(header.deferred_sequence));
  say_once(std::string(info.name) + " failed on the server with result " + std::to_string(header.deferred_result) +
           "; the program gets it from a later call");
}

int Session::result_of(const Pending& pending) {
  if (pending.lost) return kDeviceUnavailable;
  if (pending.header.deferred_result) note_deferred(pending.header);
  int deferred = take_deferred();
  int result = deferred ? deferred : pending.header.result;
  if (!ends_context(result)) return result;
  fault_ = result;
  faulty_ = thread().current();
  return result;
}

void* Session::host_write(uint64_t cookie, uint64_t offset, uint64_t nbytes) { return downloads.place(cookie, offset, nbytes); }
void Session::host_written(uint64_t cookie) { downloads.arrived(cookie); }
void Session::host_call(uint64_t token, int status) { callbacks.call(token, status); }
void Session::lost(const std::string& reason) {
  say("the connection to " + settings.server + " is lost: " + reason + ". Every further call returns error 46.");
  downloads.lost();
}

Session* session() { return the_session.load(std::memory_order_acquire); }

int connect_session() {
  if (state.load(std::memory_order_acquire) == State::kForked) return kNotInitialized;
  std::lock_guard<std::mutex> lock(connecting);
  if (!tried) connect_result = connect_locked();
  tried = true;
  return connect_result;
}

int initialise() {
  if (int error = connect_session()) return error;
  state = State::kInitialised;
  return kSuccess;
}

int ready() {
  if (state.load(std::memory_order_acquire) != State::kInitialised) return kNotInitialized;
  return session()->connection->lost() ? kDeviceUnavailable : kSuccess;
}

int ready_in_context() {
  if (int error = ready()) return error;
  uint64_t context = thread().current();
  return context ? session()->fault_of(context) : int(kInvalidContext);
}

Thread& thread() {
  thread_local Thread mine;
  return mine;
}

}  // namespace umsh
