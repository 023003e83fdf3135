// Copies between this process and the device. What leaves is taken before the call returns; what arrives in ordinary
// memory is there when the call returns.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "call.h"
#include "capture.h"
#include "hooks.h"
#include "session.h"

namespace umsh {

namespace {

constexpr uint64_t kPiecesAhead = 8;       // large pieces of one download asked for before the first has come
constexpr uint64_t kPiecesAheadMax = 256;  // small ones
constexpr size_t kCopiedBytes = 16384;     // uploads up to this go through the queue with other calls

int send_piece(uint64_t dst, const char* src, uint64_t nbytes, uint64_t stream) {
  Connection& connection = *session()->connection;
  uint64_t head[] = {dst, stream, nbytes};
  uint64_t context = thread().current(), sequence;
  if (nbytes <= kCopiedBytes) {
    thread_local Writer writer;
    writer.clear();
    writer.u64(dst);
    writer.u64(stream);
    writer.blob(src, nbytes);
    sequence = connection.send(kOpUpload, writer.data(), writer.size(), context);
  } else {
    sequence = connection.send_with(kOpUpload, head, sizeof head, src, nbytes, context);
  }
  if (sequence == 0) return kDeviceUnavailable;
  session()->progress.worked(stream, sequence);
  return kSuccess;
}

bool pinned(uint64_t address, uint64_t nbytes) {
  Block block;
  return session()->memory.find(address, &block) && block.kind != MemoryKind::kDevice && block.holds(address, nbytes);
}

// One piece of a download that waits for its bytes.
struct Piece {
  Pending pending;
  uint64_t nbytes = 0;
};

int finish(Piece& piece) {
  piece.pending.wait();
  if (int error = session()->result_of(piece.pending)) return error;
  return piece.pending.direct_nbytes == piece.nbytes ? kSuccess : kDeviceUnavailable;
}

bool ask(Piece& piece, char* dst, uint64_t src, uint64_t nbytes, uint64_t stream) {
  uint64_t request[] = {src, nbytes, stream};
  piece.nbytes = nbytes;
  piece.pending.direct = dst;
  piece.pending.direct_capacity = nbytes;
  piece.pending.direct_nbytes = 0;
  piece.pending.lost = false;
  return session()->connection->send(kOpDownload, request, sizeof request, thread().current(), &piece.pending) != 0;
}

// The connection is gone: pieces under way must still be taken back, since the reader knows their addresses.
int lost_while(Piece* ring, uint64_t done, uint64_t asked, uint64_t ahead) {
  for (; done < asked; ++done) ring[done % ahead].pending.wait();
  return kDeviceUnavailable;
}

int after_wait(uint64_t stream) {
  Session& s = *session();
  s.progress.waited(stream, s.connection->sent());
  return s.mirror.after_wait(stream, true);
}

}  // namespace

int upload(uint64_t dst, const void* src, uint64_t nbytes, uint64_t stream) {
  if (int error = ready_in_context()) return error;
  if (nbytes == 0) return kSuccess;
  if (!src || !dst) return kInvalidValue;
  Session& s = *session();
  wait_downloads(src, nbytes);
  // A kernel may have written this memory: then its bytes are on the server, and come with a real wait.
  if (s.mirror.under_way(src, nbytes))
    if (int error = wait_all()) return error;
  if (int error = before_device_use(&dst, 1, stream)) return error;
  if (any_capture() && stream && capturing(stream)) return upload_captured(dst, src, nbytes, stream);
  const char* from = static_cast<const char*>(src);
  for (uint64_t at = 0; at < nbytes; at += kPieceBytes) {
    uint64_t n = nbytes - at < kPieceBytes ? nbytes - at : uint64_t(kPieceBytes);
    if (int error = send_piece(dst + at, from + at, n, stream)) return error;
  }
  return s.on.async ? int(kSuccess) : Call(kOpPing).wait();
}

// Pieces of all rows in turn, some of them asked for ahead of the first that has come: one round trip, however many.
int download_rows(const Rows& rows, uint64_t stream) {
  uint64_t per_row = (rows.nbytes + kPieceBytes - 1) / kPieceBytes;
  uint64_t pieces = per_row * rows.count;
  uint64_t largest = rows.nbytes < kPieceBytes ? rows.nbytes : uint64_t(kPieceBytes);
  // Small pieces are cheap to have under way; large ones fill the connection by themselves.
  uint64_t ahead = std::min<uint64_t>({pieces, kPiecesAhead * kPieceBytes / largest, kPiecesAheadMax});
  std::unique_ptr<Piece[]> ring(new Piece[ahead]);
  auto ask_for = [&](uint64_t index) {
    uint64_t row = index / per_row, at = index % per_row * kPieceBytes;
    char* dst = rows.dst + row * rows.dst_pitch + at;
    return ask(ring[index % ahead], dst, rows.src + row * rows.src_pitch + at, std::min<uint64_t>(largest, rows.nbytes - at), stream);
  };
  int result = kSuccess;
  uint64_t asked = 0;
  for (uint64_t done = 0;; ++done) {
    for (; asked < pieces && asked < done + ahead && !result; ++asked)
      if (!ask_for(asked)) return lost_while(ring.get(), done, asked, ahead);
    if (done == asked) break;
    int error = finish(ring[done % ahead]);
    if (!result) result = error;
  }
  return result ? result : after_wait(stream);
}

int download(void* dst, uint64_t src, uint64_t nbytes, uint64_t stream) {
  if (int error = ready_in_context()) return error;
  if (nbytes == 0) return kSuccess;
  if (!dst || !src) return kInvalidValue;
  if (int error = before_device_use(&src, 1, stream)) return error;
  return download_rows({static_cast<char*>(dst), 0, src, 0, nbytes, 1}, stream);
}

int download_async(void* dst, uint64_t src, uint64_t nbytes, uint64_t stream) {
  if (int error = ready_in_context()) return error;
  if (nbytes == 0) return kSuccess;
  if (!dst || !src) return kInvalidValue;
  if (int error = before_device_use(&src, 1, stream)) return error;
  Session& s = *session();
  bool captured = any_capture() && stream && capturing(stream);
  // Ordinary memory: the driver returns when the bytes are there, so programs read them at once.
  if (!captured && (!pinned(reinterpret_cast<uint64_t>(dst), nbytes) || !s.on.async)) return download(dst, src, nbytes, stream);
  uint64_t cookie = s.downloads.add(dst, nbytes, captured);
  uint64_t request[] = {cookie, src, nbytes, stream};
  uint64_t sequence = s.connection->send(kOpDownloadAsync, request, sizeof request, thread().current());
  if (sequence == 0) {
    s.downloads.remove(cookie);
    return kDeviceUnavailable;
  }
  s.progress.worked(stream, sequence);
  return kSuccess;
}

void wait_downloads(const void* from, uint64_t nbytes) {
  Session& s = *session();
  if (!s.downloads.overlaps(from, nbytes)) return;
  s.connection->flush();
  s.downloads.wait_for(from, nbytes);
}

// Unified addresses: what each side is follows from where the pointer points.
int copy_any(uint64_t dst, uint64_t src, uint64_t nbytes, uint64_t stream, bool async) {
  if (int error = ready_in_context()) return error;
  if (nbytes == 0) return kSuccess;
  Session& s = *session();
  Block block;
  bool from_device = s.memory.find_device(src, &block) && block.kind == MemoryKind::kDevice;
  bool to_device = s.memory.find_device(dst, &block) && block.kind == MemoryKind::kDevice;
  auto* to = reinterpret_cast<void*>(dst);
  auto* from = reinterpret_cast<const void*>(src);
  if (from_device && to_device) {
    Op op = async ? kOp_cuMemcpyDtoDAsync_v2 : kOp_cuMemcpyDtoD_v2;
    Call call(op);
    call.u64(dst).u64(src).u64(nbytes);
    if (async) call.handle(kKindStream, reinterpret_cast<void*>(stream));
    return call.status();
  }
  if (to_device) return upload(dst, from, nbytes, stream);
  if (from_device) return async ? download_async(to, src, nbytes, stream) : download(to, src, nbytes, stream);
  // Host to host: ordered after the stream's work, then by this process itself.
  if (int error = wait_stream(stream)) return error;
  std::memmove(to, from, nbytes);
  return kSuccess;
}

}  // namespace umsh

using namespace umsh;

UMSH_EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void* src, size_t nbytes) { return upload(dst, src, nbytes, 0); }
UMSH_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void* src, size_t nbytes, void* stream) {
  if (int error = ready_in_context()) return error;
  return upload(dst, src, nbytes, stream_of(stream));
}
UMSH_EXPORT int cuMemcpyDtoH_v2(void* dst, uint64_t src, size_t nbytes) { return download(dst, src, nbytes, 0); }
UMSH_EXPORT int cuMemcpyDtoHAsync_v2(void* dst, uint64_t src, size_t nbytes, void* stream) {
  if (int error = ready_in_context()) return error;
  return download_async(dst, src, nbytes, stream_of(stream));
}
UMSH_EXPORT int cuMemcpy(uint64_t dst, uint64_t src, size_t nbytes) { return copy_any(dst, src, nbytes, 0, false); }
UMSH_EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t nbytes, void* stream) {
  if (int error = ready_in_context()) return error;
  return copy_any(dst, src, nbytes, stream_of(stream), true);
}
UMSH_EXPORT int cuMemcpyHtoD_v2_ptds(uint64_t dst, const void* src, size_t n) { return cuMemcpyHtoDAsync_v2(dst, src, n, ptsz(nullptr)); }
UMSH_EXPORT int cuMemcpyHtoDAsync_v2_ptsz(uint64_t dst, const void* src, size_t n, void* s) { return cuMemcpyHtoDAsync_v2(dst, src, n, ptsz(s)); }
UMSH_EXPORT int cuMemcpyDtoH_v2_ptds(void* dst, uint64_t src, size_t n) {
  if (int error = ready_in_context()) return error;
  return download(dst, src, n, stream_of(ptsz(nullptr)));
}
UMSH_EXPORT int cuMemcpyDtoHAsync_v2_ptsz(void* dst, uint64_t src, size_t n, void* s) { return cuMemcpyDtoHAsync_v2(dst, src, n, ptsz(s)); }
UMSH_EXPORT int cuMemcpy_ptds(uint64_t dst, uint64_t src, size_t n) {
  if (int error = ready_in_context()) return error;
  return copy_any(dst, src, n, stream_of(ptsz(nullptr)), false);
}
UMSH_EXPORT int cuMemcpyAsync_ptsz(uint64_t dst, uint64_t src, size_t n, void* s) { return cuMemcpyAsync(dst, src, n, ptsz(s)); }
