// What calls cost the client: asynchronous calls, launches, waits that need no reply, waits that do. One line each:
// name, calls, nanoseconds a call until the last has returned, and until the server has executed the last. Links the
// driver library by name, so that the search path decides whose.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuCtxGetDevice(int*);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemFree_v2(uint64_t);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
int cuMemsetD32Async(uint64_t, unsigned, size_t, void*);
int cuStreamSynchronize(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
}

static const char* const kModule = "umsh-software-module 1\nkernel none_kernel none 8,8,4\n";

static const char* const kPtx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry none_kernel(.param .u64 a, .param .u64 b, .param .u32 c)\n{\n  ret;\n}\n";

static void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed with %d\n", what, result);
  std::exit(1);
}

static uint64_t memory;

// Bursts that fit into the window of unacknowledged requests: what a call costs when nothing holds it back. Their median.
template <class F>
static void burst(const char* name, F call) {
  constexpr int kBursts = 31, kCalls = 2000;
  double taken[kBursts];
  for (double& ns : taken) {
    check(cuMemcpyDtoH_v2(&ns, memory, 4), "cuMemcpyDtoH_v2");
    auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < kCalls; ++i) check(call(i), name);
    ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kCalls;
  }
  std::nth_element(taken, taken + kBursts / 2, taken + kBursts);
  std::printf("%s %d %.1f %.1f\n", name, kCalls, taken[kBursts / 2], taken[kBursts / 2]);
}

// A wait that is real in every mode: bytes have to come.
static void drain() {
  char bytes[4];
  check(cuMemcpyDtoH_v2(bytes, memory, sizeof bytes), "cuMemcpyDtoH_v2");
}

template <class F>
static void measure(const char* name, long calls, F call) {
  for (long i = 0; i < calls / 20 + 1; ++i) check(call(i), name);
  drain();
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) check(call(i), name);
  Nanoseconds returned = std::chrono::steady_clock::now() - start;
  drain();
  Nanoseconds executed = std::chrono::steady_clock::now() - start;
  std::printf("%s %ld %.1f %.1f\n", name, calls, returned.count() / double(calls), executed.count() / double(calls));
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  long n = argc > 1 ? std::atol(argv[1]) : 200000;
  const char* kernel = argc > 2 ? argv[2] : "none_kernel";
  bool real = argc > 3 && std::strcmp(argv[3], "ptx") == 0;
  void *context, *module, *function;
  int device;
  static char host[1 << 20];
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuMemAlloc_v2(&memory, sizeof host), "cuMemAlloc_v2");
  check(cuModuleLoadData(&module, real ? kPtx : kModule), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, kernel), "cuModuleGetFunction");
  uint64_t a = memory, b = memory;
  int c = 0;
  void* parameters[] = {&a, &b, &c};
  measure("local", n, [&](long) { return cuCtxGetDevice(&device); });
  burst("memset_burst", [&](long) { return cuMemsetD32Async(memory, 1, 16, nullptr); });
  burst("launch_burst", [&](long i) {
    b = memory + uint64_t(i) % 65536;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  });
  measure("memset", n, [&](long) { return cuMemsetD32Async(memory, 1, 16, nullptr); });
  measure("launch_same", n, [&](long) { return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr); });
  measure("launch_changing", n, [&](long i) {
    b = memory + uint64_t(i) % 65536;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  });
  measure("launch_sync", n / 100, [&](long) {
    int error = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    return error ? error : cuStreamSynchronize(nullptr);
  });
  measure("upload_1k", n / 10, [&](long) { return cuMemcpyHtoD_v2(memory, host, 1024); });
  measure("upload_1m", n / 1000 + 1, [&](long) { return cuMemcpyHtoD_v2(memory, host, sizeof host); });
  measure("download_4", n / 100, [&](long) { return cuMemcpyDtoH_v2(host, memory, 4); });
  measure("download_1m", n / 1000 + 1, [&](long) { return cuMemcpyDtoH_v2(host, memory, sizeof host); });
  check(cuMemFree_v2(memory), "cuMemFree_v2");
}
