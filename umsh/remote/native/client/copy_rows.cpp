// Copies of rectangles and boxes. Where one side is memory of this process they are copies of rows, which travel without
// waiting; between device memory they go to the device as they are.
#include <cstring>

#include "call.h"
#include "capture.h"
#include "hooks.h"
#include "log.h"
#include "session.h"

using namespace umsh;

namespace {

enum MemoryType : unsigned { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

struct Rectangle {  // CUDA_MEMCPY2D
  size_t src_x, src_y;
  unsigned src_type;
  char* src_host;
  uint64_t src_device;
  void* src_array;
  size_t src_pitch, dst_x, dst_y;
  unsigned dst_type;
  char* dst_host;
  uint64_t dst_device;
  void* dst_array;
  size_t dst_pitch, width, height;
};
static_assert(sizeof(Rectangle) == 128, "as the driver lays it out");

struct Box {  // CUDA_MEMCPY3D
  size_t src_x, src_y, src_z, src_lod;
  unsigned src_type;
  char* src_host;
  uint64_t src_device;
  void* src_array;
  void* reserved0;
  size_t src_pitch, src_height, dst_x, dst_y, dst_z, dst_lod;
  unsigned dst_type;
  char* dst_host;
  uint64_t dst_device;
  void* dst_array;
  void* reserved1;
  size_t dst_pitch, dst_height, width, height, depth;
};
static_assert(sizeof(Box) == 200, "as the driver lays it out");

struct Side {
  unsigned type;
  uint64_t start;            // of the first row
  size_t pitch, slice;       // from row to row, from layer to layer
};

Side side(unsigned type, const char* host, uint64_t device, size_t pitch, size_t height, size_t x, size_t y, size_t z) {
  Block block;
  if (type == kUnified) {
    bool on_device = session()->memory.find_device(device, &block) && block.kind == MemoryKind::kDevice;
    type = on_device ? kDevice : kHost;
    host = reinterpret_cast<const char*>(device);
  }
  uint64_t base = type == kHost ? reinterpret_cast<uint64_t>(host) : device;
  return {type, base + (z * height + y) * pitch + x, pitch, pitch * height};
}

struct Shape {
  size_t width, height, depth;
};

template <class Row>
int each_row(const Side& dst, const Side& src, const Shape& shape, Row row) {
  bool whole = dst.pitch == shape.width && src.pitch == shape.width;  // rows without gaps are one
  for (size_t z = 0; z < shape.depth; ++z) {
    uint64_t to = dst.start + z * dst.slice, from = src.start + z * src.slice;
    if (whole) {
      if (int error = row(to, from, shape.width * shape.height)) return error;
      continue;
    }
    for (size_t y = 0; y < shape.height; ++y)
      if (int error = row(to + y * dst.pitch, from + y * src.pitch, shape.width)) return error;
  }
  return kSuccess;
}

int to_host(const Side& dst, const Side& src, const Shape& shape, uint64_t stream, bool async) {
  Block block;
  bool pinned = session()->memory.find(dst.start, &block) && block.kind != MemoryKind::kDevice;
  if (async && (pinned || any_capture()))
    return each_row(dst, src, shape, [=](uint64_t to, uint64_t from, size_t nbytes) {
      return download_async(reinterpret_cast<void*>(to), from, nbytes, stream);
    });
  for (size_t z = 0; z < shape.depth; ++z) {
    auto* to = reinterpret_cast<char*>(dst.start + z * dst.slice);
    Rows rows{to, dst.pitch, src.start + z * src.slice, src.pitch, shape.width, shape.height};
    if (int error = download_rows(rows, stream)) return error;
  }
  return kSuccess;
}

// A copy with a side in this process; kNotSupported when it has an array on the other.
int with_host(const char* name, const Side& dst, const Side& src, const Shape& shape, uint64_t stream, bool async) {
  if (src.type == kArray || dst.type == kArray) {
    say_once(std::string(name) + " between an array and memory of the host is not supported remotely");
    return kNotSupported;
  }
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return kSuccess;
  bool layered = shape.height > 1 || shape.depth > 1;
  if (layered && (dst.pitch < shape.width || src.pitch < shape.width)) return kInvalidValue;
  if (!dst.start || !src.start) return kInvalidValue;
  if (src.type == kDevice) return to_host(dst, src, shape, stream, async);
  if (dst.type == kDevice)
    return each_row(dst, src, shape, [=](uint64_t to, uint64_t from, size_t nbytes) {
      return upload(to, reinterpret_cast<const void*>(from), nbytes, stream);
    });
  if (int error = wait_stream(stream)) return error;
  return each_row(dst, src, shape, [](uint64_t to, uint64_t from, size_t nbytes) {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), nbytes);
    return int(kSuccess);
  });
}

template <class T>
int forward(Op op, const T* copy, void* stream, bool async) {
  T sent = *copy;
  sent.src_host = sent.dst_host = nullptr;
  Call call(op);
  call.blob(&sent, sizeof sent);
  if (async) call.handle(kKindStream, stream);
  return call.status();
}

int rectangle(Op op, const Rectangle* c, void* stream, bool async) {
  if (int error = ready_in_context()) return error;
  if (!c) return kInvalidValue;
  Side src = side(c->src_type, c->src_host, c->src_device, c->src_pitch ? c->src_pitch : c->width, 0, c->src_x, c->src_y, 0);
  Side dst = side(c->dst_type, c->dst_host, c->dst_device, c->dst_pitch ? c->dst_pitch : c->width, 0, c->dst_x, c->dst_y, 0);
  if (src.type != kHost && dst.type != kHost) return forward(op, c, stream, async);
  return with_host("cuMemcpy2D", dst, src, {c->width, c->height, 1}, stream_of(stream), async);
}

int box(Op op, const Box* c, void* stream, bool async) {
  if (int error = ready_in_context()) return error;
  if (!c) return kInvalidValue;
  size_t src_pitch = c->src_pitch ? c->src_pitch : c->width, src_height = c->src_height ? c->src_height : c->height;
  size_t dst_pitch = c->dst_pitch ? c->dst_pitch : c->width, dst_height = c->dst_height ? c->dst_height : c->height;
  Side src = side(c->src_type, c->src_host, c->src_device, src_pitch, src_height, c->src_x, c->src_y, c->src_z);
  Side dst = side(c->dst_type, c->dst_host, c->dst_device, dst_pitch, dst_height, c->dst_x, c->dst_y, c->dst_z);
  if (src.type != kHost && dst.type != kHost) return forward(op, c, stream, async);
  return with_host("cuMemcpy3D", dst, src, {c->width, c->height, c->depth}, stream_of(stream), async);
}

}  // namespace

UMSH_EXPORT int cuMemcpy2D_v2(const Rectangle* c) { return rectangle(kOp_cuMemcpy2D_v2, c, nullptr, false); }
UMSH_EXPORT int cuMemcpy2DUnaligned_v2(const Rectangle* c) { return rectangle(kOp_cuMemcpy2DUnaligned_v2, c, nullptr, false); }
UMSH_EXPORT int cuMemcpy2DAsync_v2(const Rectangle* c, void* stream) { return rectangle(kOp_cuMemcpy2DAsync_v2, c, stream, true); }
UMSH_EXPORT int cuMemcpy2DAsync_v2_ptsz(const Rectangle* c, void* stream) { return cuMemcpy2DAsync_v2(c, ptsz(stream)); }
UMSH_EXPORT int cuMemcpy3D_v2(const Box* c) { return box(kOp_cuMemcpy3D_v2, c, nullptr, false); }
UMSH_EXPORT int cuMemcpy3DAsync_v2(const Box* c, void* stream) { return box(kOp_cuMemcpy3DAsync_v2, c, stream, true); }
UMSH_EXPORT int cuMemcpy3DAsync_v2_ptsz(const Box* c, void* stream) { return cuMemcpy3DAsync_v2(c, ptsz(stream)); }
