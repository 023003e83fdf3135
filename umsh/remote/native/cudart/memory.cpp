// Device memory, arrays, pointers.
#include <cstring>

#include "cudart/runtime.h"

using namespace umsh::cudart;

UMSH_EXPORT int cudaMalloc(void** pointer, size_t n) {
  static Symbol f{"cuMemAlloc_v2"};
  if (!pointer) return done(kInvalidValue);
  *pointer = nullptr;
  return n == 0 ? done(context()) : lower(f, pointer, n);
}

UMSH_EXPORT int cudaFree(void* pointer) {
  static Symbol f{"cuMemFree_v2"};
  return pointer ? lower(f, pointer) : done(context());
}

UMSH_EXPORT int cudaFreeHost(void* pointer) {
  static Symbol f{"cuMemFreeHost"};
  return pointer ? lower(f, pointer) : done(context());
}

UMSH_EXPORT int cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  static Symbol f{"cuMemAllocPitch_v2"};
  return lower(f, pointer, pitch, width, height, 4u);
}

UMSH_EXPORT int cudaMalloc3D(PitchedPointer* out, Extent extent) {
  if (!out) return done(kInvalidValue);
  *out = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&out->pointer, &out->pitch, extent.width, extent.height * extent.depth);
}

UMSH_EXPORT int cudaMemset3D(PitchedPointer p, int value, Extent e) {
  static Symbol f{"cuMemsetD2D8_v2"};
  auto byte = static_cast<unsigned char>(value);
  auto at = reinterpret_cast<uint64_t>(p.pointer);
  int error = kSuccess;
  for (size_t z = 0; !error && z < e.depth; ++z)
    error = lower(f, at + z * p.pitch * p.ysize, p.pitch, byte, e.width, e.height);
  return error;
}

UMSH_EXPORT int cudaMemset3DAsync(PitchedPointer p, int value, Extent e, void* stream) {
  static Symbol f{"cuMemsetD2D8Async"};
  auto byte = static_cast<unsigned char>(value);
  auto at = reinterpret_cast<uint64_t>(p.pointer);
  int error = kSuccess;
  for (size_t z = 0; !error && z < e.depth; ++z)
    error = lower(f, at + z * p.pitch * p.ysize, p.pitch, byte, e.width, e.height, stream);
  return error;
}

namespace umsh::cudart {

int array_format(const Channels& c, int* format, unsigned* count) {
  // Kinds: 0 signed, 1 unsigned, 2 float. Formats of the driver: 1.. unsigned 8, 16, 32; 8.. signed; 16 and 32 floats.
  *count = c.w ? 4 : c.z ? 3 : c.y ? 2 : 1;
  int step = c.x == 8 ? 0 : c.x == 16 ? 1 : c.x == 32 ? 2 : -1;
  if (step < 0 || c.kind < 0 || c.kind > 2 || (c.kind == 2 && step == 0) || *count == 3) return 20;
  *format = c.kind == 0 ? 8 + step : c.kind == 1 ? 1 + step : 16 * step;
  return kSuccess;
}

}  // namespace umsh::cudart

namespace {

struct ArrayShape {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

Channels channels_of(const ArrayShape& a) {
  int kind = a.format >= 16 ? 2 : a.format >= 8 ? 0 : 1;
  int bits = kind == 2 ? a.format : 8 << ((a.format & 7) - (kind == 1 ? 1 : 0));
  auto n = a.channels;
  return {bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0, kind};
}

}  // namespace

UMSH_EXPORT int cudaMalloc3DArray(void** array, const Channels* channels, Extent e, unsigned flags) {
  static Symbol f{"cuArray3DCreate_v2"};
  ArrayShape shape{e.width, e.height, e.depth, 0, 0, flags};
  if (!array || !channels) return done(kInvalidValue);
  int error = array_format(*channels, &shape.format, &shape.channels);
  return error ? done(error) : lower(f, array, &shape);
}

UMSH_EXPORT int cudaMallocArray(void** array, const Channels* channels, size_t width, size_t height, unsigned flags) {
  return cudaMalloc3DArray(array, channels, {width, height, 0}, flags);
}

UMSH_EXPORT int cudaMallocMipmappedArray(void** array, const Channels* channels, Extent e, unsigned levels,
                                         unsigned flags) {
  static Symbol f{"cuMipmappedArrayCreate"};
  ArrayShape shape{e.width, e.height, e.depth, 0, 0, flags};
  if (!array || !channels) return done(kInvalidValue);
  int error = array_format(*channels, &shape.format, &shape.channels);
  return error ? done(error) : lower(f, array, &shape, levels);
}

UMSH_EXPORT int cudaArrayGetInfo(Channels* channels, Extent* extent, unsigned* flags, void* array) {
  static Symbol f{"cuArray3DGetDescriptor_v2"};
  ArrayShape shape{};
  if (int error = lower(f, &shape, array)) return error;
  if (channels) *channels = channels_of(shape);
  if (extent) *extent = {shape.width, shape.height, shape.depth};
  if (flags) *flags = shape.flags;
  return kSuccess;
}

UMSH_EXPORT int cudaGetChannelDesc(Channels* channels, void* array) {
  return cudaArrayGetInfo(channels, nullptr, nullptr, array);
}

UMSH_EXPORT Channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }

UMSH_EXPORT int cudaPointerGetAttributes(void* attributes, const void* pointer) {
  static Symbol f{"cuPointerGetAttribute"};
  struct Out {
    int type, device;
    void *on_device, *on_host;
    long reserved[8];
  };
  auto address = reinterpret_cast<uint64_t>(pointer);
  if (!attributes || !pointer) return done(kInvalidValue);
  if (int error = context()) return done(error);
  Out out{0, -2, nullptr, const_cast<void*>(pointer), {}};
  int type = 0, managed = 0, device = 0;
  if (f(&type, 2, address) == kSuccess && type) {
    f(&managed, 8, address);
    if (f(&device, 9, address)) device = 0;
    out.type = managed ? 3 : type;
    out.device = device;
    out.on_host = nullptr;
    f(&out.on_device, 3, address);
    f(&out.on_host, 4, address);
  }
  std::memcpy(attributes, &out, sizeof out);
  return kSuccess;
}
