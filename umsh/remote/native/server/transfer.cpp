// Bytes between the connection and the device.
#include "server/transfer.h"

#include <cstring>
#include <memory>

namespace umsh {

namespace {

constexpr int kInvalid = 1, kOutOfMemory = 2, kUnsupported = 801;
constexpr uint64_t kCopiedByDriver = uint64_t{64} << 10;  // up to here the driver takes ordinary memory without waiting
constexpr unsigned kNonBlocking = 1, kNoTiming = 2;

int stream_of(Session& s, uint64_t handle, void*& stream) {
  int error = 0;
  stream = s.lookup(kKindStream, handle, &error);
  return error;
}

// A stream of its own for mapped memory: it waits for nothing else, so that the executing thread may wait for it.
int mirror_stream(Session& s) {
  std::lock_guard<std::mutex> lock(s.transfers);
  return s.mirror_stream ? 0 : invoke(s.driver.cuStreamCreate, kUnsupported, &s.mirror_stream, kNonBlocking);
}

// One piece on its way to memory of the client.
struct Delivery {
  Session* session;
  uint64_t cookie, offset, nbytes;
  bool last, again;  // again: part of a graph, delivered by each replay
  StagingPool::Buffer buffer;  // of the whole download: the stream copies a piece when the one before is delivered
};

void deliver(void* data) {
  auto* d = static_cast<Delivery*>(data);
  d->session->writer.host_write(d->cookie, d->offset, d->last, d->buffer.data, d->nbytes);
  if (d->again) return;
  if (d->last) d->session->staging.give(d->buffer);
  delete d;
}

int send_piece(Session& s, std::unique_ptr<Delivery> d, uint64_t src, void* stream) {
  int error = invoke(s.driver.cuMemcpyDtoHAsync_v2, kUnsupported, d->buffer.data, src, d->nbytes, stream);
  if (error) return error;
  Delivery* on_its_way = d.release();  // the driver's from here on
  return invoke(s.driver.cuLaunchHostFunc, kUnsupported, stream, reinterpret_cast<void*>(deliver), on_its_way);
}

}  // namespace

bool capturing(Session& s, void* stream) {
  int status = 0;
  return s.captures.load() > 0 && stream && invoke(s.driver.cuStreamIsCapturing, kUnsupported, stream, &status) == 0 && status == 1;
}

int upload(Session& s, Reader& in) {
  void* stream = nullptr;
  uint64_t dst = in.u64(), handle = in.u64();
  Blob data = in.blob();
  if (!in.finished() || !data.data) return kWireError;
  if (int error = stream_of(s, handle, stream)) return error;
  if (int error = s.check(dst, data.nbytes)) return error;
  if (data.nbytes <= kCopiedByDriver) return invoke(s.driver.cuMemcpyHtoDAsync_v2, kUnsupported, dst, data.data, data.nbytes, stream);
  Relaxed relaxed(s.driver);
  StagingPool::Buffer buffer = s.staging.take(data.nbytes);
  // Without staging left the driver's own has to do; it may wait for the stream.
  if (!buffer.data) return invoke(s.driver.cuMemcpyHtoDAsync_v2, kUnsupported, dst, data.data, data.nbytes, stream);
  std::memcpy(buffer.data, data.data, data.nbytes);
  int error = invoke(s.driver.cuMemcpyHtoDAsync_v2, kUnsupported, dst, buffer.data, data.nbytes, stream);
  if (!error) return s.staging.give_after(buffer, stream);
  s.staging.give(buffer);
  return error;
}

int download_async(Session& s, Reader& in) {
  void* stream = nullptr;
  uint64_t cookie = in.u64(), src = in.u64(), nbytes = in.u64(), handle = in.u64();
  if (!in.finished()) return kWireError;
  int error = stream_of(s, handle, stream);
  if (!error) error = s.check(src, nbytes);
  if (!error && nbytes == 0) error = kInvalid;
  bool again = !error && capturing(s, stream);
  Relaxed relaxed(s.driver);
  StagingPool::Buffer buffer;
  if (!error) {
    uint64_t piece = nbytes < kPieceBytes ? nbytes : uint64_t(kPieceBytes);
    if (again) buffer.data = s.staging.keep(piece);
    else buffer = s.staging.take(piece);
    if (!buffer.data) error = buffer.error;
  }
  for (uint64_t at = 0; !error && at < nbytes; at += kPieceBytes) {
    uint64_t n = nbytes - at < kPieceBytes ? nbytes - at : uint64_t(kPieceBytes);
    error = send_piece(s, std::make_unique<Delivery>(Delivery{&s, cookie, at, n, at + n == nbytes, again, buffer}), src + at, stream);
  }
  if (error && buffer.data && !again) s.staging.give_after(buffer, stream);  // pieces before may still use it
  // The client waits for the last piece, whatever becomes of it.
  if (error) s.writer.host_write(cookie, 0, true, nullptr, 0);
  return error;
}

// The copy takes its place in the stream now; a waiting thread brings the bytes when they are there.
int download(Session& s, Reader& in, uint64_t sequence) {
  void *stream = nullptr, *event = nullptr;
  uint64_t src = in.u64(), nbytes = in.u64(), handle = in.u64();
  if (!in.finished()) return kWireError;
  if (int error = stream_of(s, handle, stream)) return error;
  if (int error = s.check(src, nbytes)) return error;
  if (nbytes == 0 || nbytes > kPieceBytes) return kInvalid;
  Relaxed relaxed(s.driver);
  StagingPool::Buffer buffer = s.staging.take(nbytes);
  if (!buffer.data) return buffer.error;
  int error = invoke(s.driver.cuMemcpyDtoHAsync_v2, kUnsupported, buffer.data, src, nbytes, stream);
  if (!error) error = invoke(s.driver.cuEventCreate, kUnsupported, &event, kNoTiming);
  if (!error) error = invoke(s.driver.cuEventRecord, kUnsupported, event, stream);
  if (error) return error;
  bool taken = s.waiters.run([&s, context = s.context, event, buffer, nbytes, sequence] {
    s.enter_waiter(context);
    int result = invoke(s.driver.cuEventSynchronize, kUnsupported, event);
    if (result) s.writer.reply(sequence, result, Writer());
    else s.writer.reply_blob(sequence, buffer.data, nbytes);
    s.staging.give(buffer);
    invoke(s.driver.cuEventDestroy_v2, kUnsupported, event);
  });
  return taken ? kAnsweredLater : kOutOfMemory;
}

int upload_captured(Session& s, Reader& in) {
  void* stream = nullptr;
  uint64_t cookie = in.u64(), dst = in.u64(), handle = in.u64();
  Blob data = in.blob();
  if (!in.finished() || !data.data) return kWireError;
  if (int error = stream_of(s, handle, stream)) return error;
  if (int error = s.check(dst, data.nbytes)) return error;
  Relaxed relaxed(s.driver);
  void* kept = nullptr;
  {
    std::lock_guard<std::mutex> lock(s.transfers);
    kept = s.captured.count(cookie) ? nullptr : s.staging.keep(data.nbytes);
    if (!kept) return kOutOfMemory;
    std::memcpy(kept, data.data, data.nbytes);
    s.captured[cookie] = {kept, data.nbytes};
  }
  return invoke(s.driver.cuMemcpyHtoDAsync_v2, kUnsupported, dst, kept, data.nbytes, stream);
}

int refresh_captured(Session& s, Reader& in) {
  uint64_t cookie = in.u64();
  Blob data = in.blob();
  if (!in.finished()) return kWireError;
  void* kept = nullptr;
  {
    std::lock_guard<std::mutex> lock(s.transfers);
    auto it = s.captured.find(cookie);
    if (it == s.captured.end() || data.nbytes != it->second.second || !data.data) return kInvalid;
    kept = it->second.first;  // stays until the session ends
  }
  int error = invoke(s.driver.cuCtxSynchronize, kUnsupported);  // replays before this one still read the old bytes
  if (!error) std::memcpy(kept, data.data, data.nbytes);
  return error;
}

int mirror_upload(Session& s, Reader& in) {
  uint64_t dst = in.u64();
  Blob data = in.blob();
  if (!in.finished() || !data.data) return kWireError;
  if (int error = s.check(dst, data.nbytes)) return error;
  Relaxed relaxed(s.driver);
  int error = mirror_stream(s);
  if (!error) error = invoke(s.driver.cuMemcpyHtoDAsync_v2, kUnsupported, dst, data.data, data.nbytes, s.mirror_stream);
  return error ? error : invoke(s.driver.cuStreamSynchronize, kUnsupported, s.mirror_stream);
}

int mirror_download(Session& s, Reader& in, Writer& out) {
  uint64_t src = in.u64(), nbytes = in.u64();
  if (!in.finished() || nbytes > kPieceBytes) return kWireError;
  if (int error = s.check(src, nbytes)) return error;
  Relaxed relaxed(s.driver);
  if (int error = mirror_stream(s)) return error;
  char* to = out.reserve_blob(nbytes);
  int error = invoke(s.driver.cuMemcpyDtoHAsync_v2, kUnsupported, to, src, nbytes, s.mirror_stream);
  return error ? error : invoke(s.driver.cuStreamSynchronize, kUnsupported, s.mirror_stream);
}

int mirror_alloc(Session& s, Reader& in) {
  uint64_t address = in.u64(), nbytes = in.u64();
  in.u64();
  if (!in.finished()) return kWireError;
  Relaxed relaxed(s.driver);
  if (int error = s.memory.allocate_mirror(address, nbytes, s.device)) return error;
  int error = mirror_stream(s);
  if (!error) error = invoke(s.driver.cuMemsetD8Async, kUnsupported, address, static_cast<unsigned char>(0), nbytes, s.mirror_stream);
  return error ? error : invoke(s.driver.cuStreamSynchronize, kUnsupported, s.mirror_stream);
}

}  // namespace umsh
