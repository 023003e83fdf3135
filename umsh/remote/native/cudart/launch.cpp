// Launches, host functions and what is known of a kernel.
#include <memory>

#include "cudart/runtime.h"

using namespace umsh::cudart;

namespace {

struct Config {
  Dim3 grid, block;
  size_t shared;
  void* stream;
  void* attributes;
  unsigned count;
};

struct DriverConfig {
  Dim3 grid, block;
  unsigned shared;
  void* stream;
  void* attributes;
  unsigned count;
};

int launch(const void* symbol, Dim3 g, Dim3 b, void** arguments, size_t shared, void* stream) {
  static Symbol f{"cuLaunchKernel"};
  void* function = nullptr;
  if (int error = function_of(symbol, &function)) return done(error);
  return done(f(function, g.x, g.y, g.z, b.x, b.y, b.z, static_cast<unsigned>(shared), stream, arguments,
                static_cast<void**>(nullptr)));
}

int launch_with(const Config* config, const void* symbol, void** arguments, void* stream) {
  static Symbol f{"cuLaunchKernelEx"};
  void* function = nullptr;
  if (int error = function_of(symbol, &function)) return done(error);
  DriverConfig to{config->grid, config->block, static_cast<unsigned>(config->shared), stream, config->attributes,
                  config->count};
  return done(f(&to, function, arguments, static_cast<void**>(nullptr)));
}

}  // namespace

UMSH_EXPORT int cudaLaunchKernel(const void* f, Dim3 g, Dim3 b, void** arguments, size_t shared, void* stream) {
  return launch(f, g, b, arguments, shared, stream);
}
UMSH_EXPORT int cudaLaunchKernel_ptsz(const void* f, Dim3 g, Dim3 b, void** arguments, size_t shared, void* stream) {
  return launch(f, g, b, arguments, shared, per_thread(stream));
}
UMSH_EXPORT int __cudaLaunchKernel(void* f, Dim3 g, Dim3 b, void** arguments, size_t shared, void* stream) {
  return launch(f, g, b, arguments, shared, stream);
}
UMSH_EXPORT int __cudaLaunchKernel_ptsz(void* f, Dim3 g, Dim3 b, void** arguments, size_t shared, void* stream) {
  return launch(f, g, b, arguments, shared, per_thread(stream));
}

UMSH_EXPORT int cudaLaunchCooperativeKernel(const void* symbol, Dim3 g, Dim3 b, void** arguments, size_t shared,
                                            void* stream) {
  static Symbol f{"cuLaunchCooperativeKernel"};
  void* function = nullptr;
  if (int error = function_of(symbol, &function)) return done(error);
  return done(f(function, g.x, g.y, g.z, b.x, b.y, b.z, static_cast<unsigned>(shared), stream, arguments));
}
UMSH_EXPORT int cudaLaunchCooperativeKernel_ptsz(const void* symbol, Dim3 g, Dim3 b, void** arguments, size_t shared,
                                                 void* stream) {
  return cudaLaunchCooperativeKernel(symbol, g, b, arguments, shared, per_thread(stream));
}

UMSH_EXPORT int cudaLaunchKernelExC(const void* config, const void* symbol, void** arguments) {
  auto* c = static_cast<const Config*>(config);
  return c ? launch_with(c, symbol, arguments, c->stream) : done(kInvalidValue);
}
UMSH_EXPORT int cudaLaunchKernelExC_ptsz(const void* config, const void* symbol, void** arguments) {
  auto* c = static_cast<const Config*>(config);
  return c ? launch_with(c, symbol, arguments, per_thread(c->stream)) : done(kInvalidValue);
}

UMSH_EXPORT int cudaFuncGetAttributes(void* attributes, const void* symbol) {
  // cudaFuncAttributes by offset: three sizes, then ints, each one the driver's attribute of the same meaning.
  static Symbol f{"cuFuncGetAttribute"};
  struct Attributes {
    size_t sizes[3];
    int values[12];
    int reserved[17];
  };
  static constexpr int kSizes[] = {1, 2, 3};
  static constexpr int kValues[] = {0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15};
  void* function = nullptr;
  if (!attributes) return done(kInvalidValue);
  if (int error = function_of(symbol, &function)) return done(error);
  auto& out = *new (attributes) Attributes{};
  for (size_t i = 0; i < 3; ++i) {
    int value = 0;
    if (int error = f(&value, kSizes[i], function)) return done(error);
    out.sizes[i] = static_cast<size_t>(value);
  }
  for (size_t i = 0; i < 12; ++i) {
    // Attributes that are newer than the driver stay 0.
    if (int error = f(&out.values[i], kValues[i], function); error && i < 5) return done(error);
  }
  int portable = 0, policy = 0;
  if (!f(&portable, 14, function) && !f(&policy, 15, function)) {
    out.values[11] = policy;
    out.reserved[0] = portable;
  }
  return kSuccess;
}

UMSH_EXPORT int cudaOccupancyMaxActiveClusters(int* count, const void* symbol, const Config* c) {
  static Symbol f{"cuOccupancyMaxActiveClusters"};
  void* function = nullptr;
  if (!c) return done(kInvalidValue);
  if (int error = function_of(symbol, &function)) return done(error);
  DriverConfig to{c->grid, c->block, static_cast<unsigned>(c->shared), c->stream, c->attributes, c->count};
  return done(f(count, function, &to));
}

UMSH_EXPORT int cudaOccupancyMaxPotentialClusterSize(int* size, const void* symbol, const Config* c) {
  static Symbol f{"cuOccupancyMaxPotentialClusterSize"};
  void* function = nullptr;
  if (!c) return done(kInvalidValue);
  if (int error = function_of(symbol, &function)) return done(error);
  DriverConfig to{c->grid, c->block, static_cast<unsigned>(c->shared), c->stream, c->attributes, c->count};
  return done(f(size, function, &to));
}
