// A loop of kernels of a given length, each followed by a synchronise, and at its end four bytes brought to the host.
// Prints the seconds of the whole loop. Arguments: kernels, microseconds of each.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuStreamSynchronize(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
}

// Runs until the device's nanosecond clock has advanced far enough.
static const char* const kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}
)";
static const char* const kModule = "umsh-software-module 1\nkernel spin spin 8\n";

static void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed with %d\n", what, result);
  std::exit(1);
}

int main(int argc, char** argv) {
  int kernels = argc > 1 ? std::atoi(argv[1]) : 2000;
  uint64_t nanoseconds = uint64_t(argc > 2 ? std::atoi(argv[2]) : 25) * 1000;
  bool software = argc > 3;
  void *context, *module, *function;
  uint64_t memory;
  char bytes[4];
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuMemAlloc_v2(&memory, sizeof bytes), "cuMemAlloc_v2");
  check(cuModuleLoadData(&module, software ? kModule : kPtx), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "spin"), "cuModuleGetFunction");
  void* parameters[] = {&nanoseconds};
  std::chrono::steady_clock::time_point start;
  for (int i = -20; i < kernels; ++i) {
    if (i == 0) {
      check(cuMemcpyDtoH_v2(bytes, memory, sizeof bytes), "cuMemcpyDtoH_v2");
      start = std::chrono::steady_clock::now();
    }
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
    check(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
  check(cuMemcpyDtoH_v2(bytes, memory, sizeof bytes), "cuMemcpyDtoH_v2");
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%.6f\n", took.count());
}
