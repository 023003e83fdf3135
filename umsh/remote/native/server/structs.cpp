// Structs whose fields mean different things: which handle or address is checked follows from the type beside it.
#include "server/structs.h"

#include "generated/structs.h"

namespace umsh {

namespace {

constexpr int kHost = 1, kDevice = 2, kArray = 3, kUnified = 4;  // CUmemorytype

unsigned word_at(const void* data, size_t offset) {
  unsigned value;
  std::memcpy(&value, static_cast<const char*>(data) + offset, sizeof value);
  return value;
}

// One side of a copy: type, host pointer, device address and array stand in this order, 8 bytes each.
int translate_side(Session& s, void* data, size_t type_at, Way way) {
  size_t host = type_at + 8, device = type_at + 16, array = type_at + 24;
  int error = 0;
  unsigned type = word_at(data, type_at);
  set_field(data, host, 0);
  if (type == kArray) translate_handle(s, data, array, kKindArray, way, &error);
  else set_field(data, array, 0);
  if (way == Way::kOut) return 0;
  if (type == kHost) return kRefusedStruct;  // host memory travels by itself
  if (type == kDevice || type == kUnified) return s.check(field_at(data, device), 1);
  return error;
}

int translate_sides(Session& s, void* data, size_t src, size_t dst, Way way) {
  int error = translate_side(s, data, src, way);
  int other = translate_side(s, data, dst, way);
  return error ? error : other;
}

}  // namespace

int translate_CUDA_MEMCPY2D_st(Session& s, void* data, Way way) { return translate_sides(s, data, 16, 72, way); }

int translate_CUDA_MEMCPY3D_st(Session& s, void* data, Way way) {
  set_field(data, 64, 0);  // reserved
  set_field(data, 152, 0);
  return translate_sides(s, data, 32, 120, way);
}

int translate_CUDA_MEMCPY3D_PEER_st(Session& s, void* data, Way way) {
  int error = translate_sides(s, data, 32, 120, way);
  translate_handle(s, data, 64, kKindContext, way, &error);
  translate_handle(s, data, 152, kKindContext, way, &error);
  return error;
}

int translate_CUDA_RESOURCE_DESC_st(Session& s, void* data, Way way) {
  enum : unsigned { kResourceArray = 0, kResourceMipmap = 1, kResourceLinear = 2, kResourcePitch2D = 3 };
  int error = 0;
  unsigned type = word_at(data, 0);
  if (type == kResourceArray) translate_handle(s, data, 8, kKindArray, way, &error);
  else if (type == kResourceMipmap) translate_handle(s, data, 8, kKindMipmappedArray, way, &error);
  else if (type != kResourceLinear && type != kResourcePitch2D) return kRefusedStruct;
  else if (way == Way::kIn) error = s.check(field_at(data, 8), 1);
  return error;
}

int translate_nvmlGpmMetricsGet_t(Session& s, void* data, Way way) {
  constexpr size_t kFirst = 24, kStride = 40, kMetrics = 210, kNames = 16;  // three pointers to text of the server
  int error = 0;
  translate_handle(s, data, 8, kKindNvmlGpmSample, way, &error);
  translate_handle(s, data, 16, kKindNvmlGpmSample, way, &error);
  for (size_t i = 0; i < kMetrics; ++i)
    for (size_t name = 0; name < 3; ++name) set_field(data, kFirst + i * kStride + kNames + 8 * name, 0);
  return error;
}

}  // namespace umsh
