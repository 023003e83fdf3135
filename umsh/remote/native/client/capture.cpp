#include "capture.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "call.h"
#include "hooks.h"
#include "log.h"
#include "session.h"

namespace umsh {

namespace {

std::atomic<int> captures{0};

// Captures under way, by the stream that began them; programs compare the numbers.
struct Captures {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> ids;
  uint64_t next = 1;
};
Captures& known() {
  static auto* all = new Captures;
  return *all;
}

// The number of the capture that a stream is part of; 0 when several are under way and this stream began none.
uint64_t capture_id(uint64_t stream) {
  std::lock_guard<std::mutex> lock(known().mutex);
  auto it = known().ids.find(stream);
  if (it != known().ids.end()) return it->second;
  return known().ids.size() == 1 ? known().ids.begin()->second : 0;
}

// Host memory that a graph reads: what it held when it was last sent.
struct CapturedUpload {
  uint64_t cookie;
  const char* from;
  std::vector<char> sent;
};
struct CapturedUploads {
  std::mutex mutex;
  std::vector<CapturedUpload> all;
};
CapturedUploads& uploads() {
  static auto* all = new CapturedUploads;
  return *all;
}
std::atomic<bool> have_uploads{false};
std::atomic<uint64_t> next_cookie{1};

int begin(Call& call, uint64_t stream) {
  if (int error = call.wait()) return error;
  std::lock_guard<std::mutex> lock(known().mutex);
  known().ids[stream] = known().next++;
  captures = int(known().ids.size());
  return kSuccess;
}

void end(uint64_t stream) {
  std::lock_guard<std::mutex> lock(known().mutex);
  known().ids.erase(stream);
  captures = int(known().ids.size());
}

int status_of(void* stream, int* out) {
  *out = 0;
  if (!any_capture()) return kSuccess;
  Reply reply = Call(kOp_cuStreamIsCapturing).handle(kKindStream, stream).u64(1).reply();
  if (reply.result == kSuccess) reply.u64(out, sizeof *out);
  return reply.result;
}

// What a capture has so far (its graph, the nodes that come next) stays on the server: asking for it is refused.
int info(const char* name, void* stream, int* status, uint64_t* id, bool wants_nodes) {
  if (int error = local_call_in_context()) return error;
  if (!status) return kInvalidValue;
  if (int error = status_of(stream, status)) return error;
  if (*status == 0) return kSuccess;
  uint64_t number = capture_id(stream_of(stream));
  if (wants_nodes || number == 0) {
    say_unsupported(name);
    return kNotSupported;
  }
  if (id) *id = number;
  return kSuccess;
}

}  // namespace

bool any_capture() { return captures.load(std::memory_order_acquire) > 0; }
bool any_captured_upload() { return have_uploads.load(std::memory_order_acquire); }

bool capturing(uint64_t stream) {
  Reply reply = Call(kOp_cuStreamIsCapturing).handle(kKindStream, reinterpret_cast<void*>(stream)).u64(1).reply();
  int status = 0;
  return reply.result == kSuccess && reply.u64(&status, sizeof status) && status != 0;
}

int upload_captured(uint64_t dst, const void* src, uint64_t nbytes, uint64_t stream) {
  const char* from = static_cast<const char*>(src);
  std::lock_guard<std::mutex> lock(uploads().mutex);
  for (uint64_t at = 0; at < nbytes; at += kPieceBytes) {
    uint64_t n = nbytes - at < kPieceBytes ? nbytes - at : uint64_t(kPieceBytes);
    uint64_t cookie = next_cookie++;
    Call call(kOpUploadCaptured);
    call.u64(cookie).u64(dst + at).u64(stream).blob(from + at, n);
    if (int error = call.wait()) return error;
    uploads().all.push_back({cookie, from + at, std::vector<char>(from + at, from + at + n)});
    have_uploads = true;
  }
  return kSuccess;
}

int refresh_captured() {
  if (!any_captured_upload()) return kSuccess;
  std::lock_guard<std::mutex> lock(uploads().mutex);
  for (CapturedUpload& upload : uploads().all) {
    wait_downloads(upload.from, upload.sent.size());
    // Memory that the program has given back since must not be read: only pinned memory is known to be still there.
    Block block;
    bool there = session()->memory.find(reinterpret_cast<uint64_t>(upload.from), &block) &&
                 block.holds(reinterpret_cast<uint64_t>(upload.from), upload.sent.size());
    if (!there || std::memcmp(upload.from, upload.sent.data(), upload.sent.size()) == 0) continue;
    std::memcpy(upload.sent.data(), upload.from, upload.sent.size());
    Call call(kOpRefreshCaptured);
    if (int error = call.u64(upload.cookie).blob(upload.sent.data(), upload.sent.size()).wait()) return error;
  }
  return kSuccess;
}

}  // namespace umsh

using namespace umsh;

UMSH_EXPORT int cuStreamBeginCapture_v2(void* stream, int mode) {
  if (int error = ready_in_context()) return error;
  Call call(kOp_cuStreamBeginCapture_v2);
  call.handle(kKindStream, stream).u64(uint64_t(mode));
  return begin(call, stream_of(stream));
}
UMSH_EXPORT int cuStreamBeginCapture_v2_ptsz(void* stream, int mode) { return cuStreamBeginCapture_v2(ptsz(stream), mode); }

UMSH_EXPORT int cuStreamEndCapture(void* stream, void** out) {
  if (int error = ready_in_context()) return error;
  if (!out) return kInvalidValue;
  Call call(kOp_cuStreamEndCapture);
  call.handle(kKindStream, stream);
  uint64_t graph = call.make(kKindGraph);
  int error = call.wait();
  // Whatever the result, the capture is over; only a stream that had none (invalid value) or another thread's leaves it.
  constexpr int kWrongThread = 908, kUnmatched = 903;
  bool goes_on = error == kInvalidValue || error == kInvalidHandle || error == kWrongThread || error == kUnmatched;
  if (!goes_on) end(stream_of(stream));
  *out = error ? nullptr : reinterpret_cast<void*>(graph);
  return error;
}
UMSH_EXPORT int cuStreamEndCapture_ptsz(void* stream, void** out) { return cuStreamEndCapture(ptsz(stream), out); }

UMSH_EXPORT int cuStreamIsCapturing(void* stream, int* out) {
  if (int error = local_call_in_context()) return error;
  if (!out) return kInvalidValue;
  return status_of(stream, out);
}
UMSH_EXPORT int cuStreamIsCapturing_ptsz(void* stream, int* out) { return cuStreamIsCapturing(ptsz(stream), out); }

UMSH_EXPORT int cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph, const void*** nodes, size_t* count) {
  return info("cuStreamGetCaptureInfo_v2", stream, status, id, graph || nodes || count);
}
UMSH_EXPORT int cuStreamGetCaptureInfo_v2_ptsz(void* stream, int* status, uint64_t* id, void** graph, const void*** nodes,
                                               size_t* count) {
  return cuStreamGetCaptureInfo_v2(ptsz(stream), status, id, graph, nodes, count);
}
UMSH_EXPORT int cuStreamGetCaptureInfo_v3(void* stream, int* status, uint64_t* id, void** graph, const void*** nodes,
                                          const void** edges, size_t* count) {
  return info("cuStreamGetCaptureInfo_v3", stream, status, id, graph || nodes || edges || count);
}
UMSH_EXPORT int cuStreamGetCaptureInfo_v3_ptsz(void* stream, int* status, uint64_t* id, void** graph, const void*** nodes,
                                               const void** edges, size_t* count) {
  return cuStreamGetCaptureInfo_v3(ptsz(stream), status, id, graph, nodes, edges, count);
}

UMSH_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (int error = ready()) return error;
  if (!mode || *mode < 0 || *mode > 2) return kInvalidValue;
  Thread& mine = thread();
  int before = mine.capture_mode;
  if (*mode != before) {
    int error = Call(kOp_cuThreadExchangeStreamCaptureMode).blob(mode, sizeof *mode).wait();
    if (error) return error;
  }
  mine.capture_mode = *mode;
  *mode = before;
  return kSuccess;
}

UMSH_EXPORT int cuGraphLaunch(void* exec, void* handle) {
  if (int error = ready_in_context()) return error;
  Session& s = *session();
  uint64_t stream = stream_of(handle);
  if (int error = refresh_captured()) return error;
  if (int error = s.mirror.before_any(stream)) return error;
  Call call(kOp_cuGraphLaunch);
  call.handle(kKindGraphExec, exec).handle(kKindStream, handle);
  if (s.downloads.any_captured() || s.callbacks.any_captured()) s.replays.launched(stream);
  return call.status();
}
UMSH_EXPORT int cuGraphLaunch_ptsz(void* exec, void* stream) { return cuGraphLaunch(exec, ptsz(stream)); }
