// Texture and surface objects: descriptors of the runtime become the driver's.
#include <cstring>

#include "cudart/runtime.h"

using namespace umsh::cudart;

namespace {

// Both descriptors are 144 bytes: kind, a union at 8, flags at 136.
struct Resource {
  int type;
  union {
    void* array;
    struct {
      void* pointer;
      Channels channels;
      size_t width, height, pitch;  // width: bytes when linear
    } flat;
    int reserved[32];
  } of;
  unsigned flags;
};

struct DriverResource {
  int type;
  union {
    void* array;
    struct {
      void* pointer;
      int format;
      unsigned channels;
      size_t width, height, pitch;
    } flat;
    int reserved[32];
  } of;
  unsigned flags;
};
static_assert(sizeof(Resource) == 144 && sizeof(DriverResource) == 144, "the headers' layout");

struct Texture {
  int address[3], filter, read, srgb;
  float border[4];
  int normalized;
  unsigned anisotropy;
  int mip_filter;
  float bias, least, most;
  int no_trilinear, seamless;
};
static_assert(sizeof(Texture) == 72, "the headers' layout");

struct DriverTexture {
  int address[3], filter;
  unsigned flags, anisotropy;
  int mip_filter;
  float bias, least, most;
  float border[4];
  int reserved[12];
};
static_assert(sizeof(DriverTexture) == 104, "the headers' layout");

int translate(const Resource* from, DriverResource& to) {
  if (!from) return kInvalidValue;
  std::memset(&to, 0, sizeof to);
  to.type = from->type;
  to.flags = from->flags;
  if (from->type < 2) {
    to.of.array = from->of.array;
    return kSuccess;
  }
  auto& flat = from->of.flat;
  to.of.flat.pointer = flat.pointer;
  to.of.flat.width = flat.width;
  if (from->type == 3) to.of.flat.height = flat.height, to.of.flat.pitch = flat.pitch;
  return array_format(flat.channels, &to.of.flat.format, &to.of.flat.channels);
}

DriverTexture translate(const Texture& from) {
  DriverTexture to{};
  std::memcpy(to.address, from.address, sizeof to.address);
  to.filter = from.filter;
  // Flags: 1 integers as they are, 2 normalised coordinates, 16 sRGB, 32 no trilinear optimisation, 64 seamless cube.
  to.flags = (from.read == 0 ? 1u : 0u) | (from.normalized ? 2u : 0u) | (from.srgb ? 16u : 0u) |
             (from.no_trilinear ? 32u : 0u) | (from.seamless ? 64u : 0u);
  to.anisotropy = from.anisotropy;
  to.mip_filter = from.mip_filter;
  to.bias = from.bias;
  to.least = from.least;
  to.most = from.most;
  std::memcpy(to.border, from.border, sizeof to.border);
  return to;
}

}  // namespace

UMSH_EXPORT int cudaCreateTextureObject(uint64_t* out, const Resource* resource, const Texture* texture,
                                        const void* view) {
  static Symbol f{"cuTexObjectCreate"};
  DriverResource to;
  if (!texture) return done(kInvalidValue);
  if (int error = translate(resource, to)) return done(error);
  DriverTexture how = translate(*texture);
  return lower(f, out, &to, &how, view);
}

UMSH_EXPORT int cudaCreateSurfaceObject(uint64_t* out, const Resource* resource) {
  static Symbol f{"cuSurfObjectCreate"};
  DriverResource to;
  if (int error = translate(resource, to)) return done(error);
  return lower(f, out, &to);
}
