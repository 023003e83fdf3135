// Copies: linear, pitched, three-dimensional, of arrays and of symbols. The driver tells host from device by address.
#include "cudart/runtime.h"

namespace umsh::cudart {

namespace {

constexpr int kUnified = 4, kArray = 3;
constexpr int kKindMax = 4;

DriverSide linear(const void* pointer, size_t pitch, size_t height) {
  DriverSide side{};
  side.type = kUnified;
  side.device = reinterpret_cast<uint64_t>(pointer);
  side.pitch = pitch;
  side.height = height;
  return side;
}

DriverSide of_array(const void* array, size_t x_bytes, size_t y) {
  DriverSide side{};
  side.type = kArray;
  side.array = const_cast<void*>(array);
  side.x = x_bytes;
  side.y = y;
  return side;
}

int copy(const DriverSide& to, const DriverSide& from, size_t width, size_t height, int kind) {
  static Symbol f{"cuMemcpy3D_v2"};
  DriverCopy all{from, to, width, height, 1};
  return kind < 0 || kind > kKindMax ? done(kInvalidDirection) : lower(f, &all);
}

int copy(const DriverSide& to, const DriverSide& from, size_t width, size_t height, int kind, void* stream) {
  static Symbol f{"cuMemcpy3DAsync_v2"};
  DriverCopy all{from, to, width, height, 1};
  return kind < 0 || kind > kKindMax ? done(kInvalidDirection) : lower(f, &all, stream);
}

int bytes_of(const void* array, size_t* nbytes) {
  static Symbol f{"cuArray3DGetDescriptor_v2"};
  struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
  } described{};
  if (int error = context()) return error;
  if (int error = f(&described, array)) return error;
  int format = described.format;
  size_t one = format == 0x01 || format == 0x08 ? 1 : format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 4;
  *nbytes = one * described.channels;
  return kSuccess;
}

DriverSide side_of(void* array, const Position& at, const PitchedPointer& linear_side, size_t element) {
  DriverSide side = array ? of_array(array, at.x * element, at.y)
                          : linear(linear_side.pointer, linear_side.pitch, linear_side.ysize);
  if (!array) side.x = at.x, side.y = at.y;
  side.z = at.z;
  return side;
}

}  // namespace

int driver_copy(const Copy3D& from, DriverCopy& out) {
  // With an array on either side, the extent and that side's position count its elements.
  size_t element = 1;
  if (void* array = from.from_array ? from.from_array : from.to_array) {
    if (int error = bytes_of(array, &element)) return error;
  }
  out = {};
  out.from = side_of(from.from_array, from.from_position, from.from, element);
  out.to = side_of(from.to_array, from.to_position, from.to, element);
  out.width = from.extent.width * element;
  out.height = from.extent.height;
  out.depth = from.extent.depth;
  return kSuccess;
}

}  // namespace umsh::cudart

using namespace umsh::cudart;

UMSH_EXPORT int cudaMemcpy(void* to, const void* from, size_t n, int kind) {
  static Symbol up{"cuMemcpyHtoD_v2"}, down{"cuMemcpyDtoH_v2"}, either{"cuMemcpy"};
  if (kind < 0 || kind > kKindMax) return done(kInvalidDirection);
  if (n == 0) return kSuccess;
  if (kind == 1) return lower(up, to, from, n);
  return kind == 2 ? lower(down, to, from, n) : lower(either, to, from, n);
}

UMSH_EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* stream) {
  static Symbol up{"cuMemcpyHtoDAsync_v2"}, down{"cuMemcpyDtoHAsync_v2"}, either{"cuMemcpyAsync"};
  if (kind < 0 || kind > kKindMax) return done(kInvalidDirection);
  if (n == 0) return kSuccess;
  if (kind == 1) return lower(up, to, from, n, stream);
  return kind == 2 ? lower(down, to, from, n, stream) : lower(either, to, from, n, stream);
}

UMSH_EXPORT int cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) { return cudaMemcpy(to, from, n, 4); }
UMSH_EXPORT int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, void* stream) {
  return cudaMemcpyAsync(to, from, n, 4, stream);
}

UMSH_EXPORT int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t pitch, size_t w, size_t h, int kind) {
  return copy(linear(to, to_pitch, h), linear(from, pitch, h), w, h, kind);
}
UMSH_EXPORT int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t pitch, size_t w, size_t h,
                                  int kind, void* stream) {
  return copy(linear(to, to_pitch, h), linear(from, pitch, h), w, h, kind, stream);
}
UMSH_EXPORT int cudaMemcpy2DToArray(void* to, size_t x, size_t y, const void* from, size_t pitch, size_t w, size_t h,
                                    int kind) {
  return copy(of_array(to, x, y), linear(from, pitch, h), w, h, kind);
}
UMSH_EXPORT int cudaMemcpy2DToArrayAsync(void* to, size_t x, size_t y, const void* from, size_t pitch, size_t w,
                                         size_t h, int kind, void* stream) {
  return copy(of_array(to, x, y), linear(from, pitch, h), w, h, kind, stream);
}
UMSH_EXPORT int cudaMemcpy2DFromArray(void* to, size_t pitch, const void* from, size_t x, size_t y, size_t w, size_t h,
                                      int kind) {
  return copy(linear(to, pitch, h), of_array(from, x, y), w, h, kind);
}
UMSH_EXPORT int cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, const void* from, size_t x, size_t y, size_t w,
                                           size_t h, int kind, void* stream) {
  return copy(linear(to, pitch, h), of_array(from, x, y), w, h, kind, stream);
}
UMSH_EXPORT int cudaMemcpy2DArrayToArray(void* to, size_t to_x, size_t to_y, const void* from, size_t x, size_t y,
                                         size_t w, size_t h, int kind) {
  return copy(of_array(to, to_x, to_y), of_array(from, x, y), w, h, kind);
}

UMSH_EXPORT int cudaMemcpy3D(const Copy3D* parameters) {
  static Symbol f{"cuMemcpy3D_v2"};
  DriverCopy all;
  if (!parameters) return done(kInvalidValue);
  int error = driver_copy(*parameters, all);
  return error ? done(error) : lower(f, &all);
}
UMSH_EXPORT int cudaMemcpy3DAsync(const Copy3D* parameters, void* stream) {
  static Symbol f{"cuMemcpy3DAsync_v2"};
  DriverCopy all;
  if (!parameters) return done(kInvalidValue);
  int error = driver_copy(*parameters, all);
  return error ? done(error) : lower(f, &all, stream);
}

namespace {

int part_of(const void* symbol, size_t n, size_t offset, char** at) {
  void* address = nullptr;
  size_t nbytes = 0;
  if (int error = variable_of(symbol, &address, &nbytes)) return error;
  *at = static_cast<char*>(address) + offset;
  return offset > nbytes || n > nbytes - offset ? kInvalidValue : kSuccess;
}

}  // namespace

UMSH_EXPORT int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t n, size_t offset, int kind) {
  char* at = nullptr;
  int error = part_of(symbol, n, offset, &at);
  return error ? done(error) : cudaMemcpy(at, from, n, kind);
}
UMSH_EXPORT int cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t n, size_t offset, int kind,
                                        void* stream) {
  char* at = nullptr;
  int error = part_of(symbol, n, offset, &at);
  return error ? done(error) : cudaMemcpyAsync(at, from, n, kind, stream);
}
UMSH_EXPORT int cudaMemcpyFromSymbol(void* to, const void* symbol, size_t n, size_t offset, int kind) {
  char* at = nullptr;
  int error = part_of(symbol, n, offset, &at);
  return error ? done(error) : cudaMemcpy(to, at, n, kind);
}
UMSH_EXPORT int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t n, size_t offset, int kind,
                                          void* stream) {
  char* at = nullptr;
  int error = part_of(symbol, n, offset, &at);
  return error ? done(error) : cudaMemcpyAsync(to, at, n, kind, stream);
}
