// The CUDA runtime API on top of whatever libcuda.so.1 the process finds: what its parts share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/export.h"

namespace umsh::cudart {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kInvalidSymbol = 13, kInvalidDirection = 21;
constexpr int kMissingConfiguration = 52, kInvalidFunction = 98, kNoDevice = 100, kInvalidDevice = 101, kNotFound = 500;
constexpr int kNotSupported = 801;

constexpr int kRuntimeVersion = 13000;  // CUDA 13.0: the headers that tables/prototypes.json was made from

struct Dim3 {
  unsigned x, y, z;
};
struct Extent {
  size_t width, height, depth;
};
struct Position {
  size_t x, y, z;
};
struct PitchedPointer {
  void* pointer;
  size_t pitch, xsize, ysize;
};
struct Channels {
  int x, y, z, w, kind;
};
struct Copy3D {
  void* from_array;
  Position from_position;
  PitchedPointer from;
  void* to_array;
  Position to_position;
  PitchedPointer to;
  Extent extent;
  int kind;
};

// The driver's copy descriptor (CUDA_MEMCPY3D): `from` and `to` have the same layout.
struct DriverSide {
  size_t x, y, z, lod;
  int type;
  void* host;
  uint64_t device;
  void* array;
  void* reserved;
  size_t pitch, height;
};
struct DriverCopy {
  DriverSide from, to;
  size_t width, height, depth;
};

void* driver_symbol(const char* name);

// A function of the driver by name, looked up at its first call. The caller's argument types are the prototype's.
class Symbol {
 public:
  explicit constexpr Symbol(const char* name) : name_(name) {}
  template <class... A>
  int operator()(A... arguments) {
    void* f = function_.load(std::memory_order_acquire);
    if (!f) function_.store(f = driver_symbol(name_), std::memory_order_release);
    return f ? reinterpret_cast<int (*)(A...)>(f)(arguments...) : kNotSupported;
  }

 private:
  const char* name_;
  std::atomic<void*> function_{nullptr};
};

int done(int error);       // remembers an error as this thread's last one; returns it
int start();               // the driver is initialised
int context();             // this thread has a current context: its device's primary one when it had none
int unsupported(const char* name);  // says so once on stderr

// Runs a driver call in this thread's context.
template <class... A>
int lower(Symbol& f, A... arguments) {
  int error = context();
  return done(error ? error : f(arguments...));
}

inline void* per_thread(void* stream) { return stream ? stream : reinterpret_cast<void*>(uintptr_t{2}); }

// Registered symbols and the modules behind them (registry.cpp).
int function_of(const void* symbol, void** function);  // CUfunction in the current context
int kernel_of(const void* symbol, void** kernel);      // CUkernel
int variable_of(const void* symbol, void** address, size_t* nbytes);

int driver_copy(const Copy3D& copy, DriverCopy& out);
int element_bytes(const Channels& channels);
int array_format(const Channels& channels, int* format, unsigned* count);

}  // namespace umsh::cudart
