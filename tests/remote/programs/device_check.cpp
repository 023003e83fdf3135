// A driver-API program that knows nothing of umsh, for a real device: prints one line for each check that holds, and
// ends with the number of those that do not. Links the driver library by name.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuCtxSynchronize();
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemFree_v2(uint64_t);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemAllocManaged(uint64_t*, size_t, unsigned);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuMemcpyHtoDAsync_v2(uint64_t, const void*, size_t, void*);
int cuMemcpyDtoHAsync_v2(void*, uint64_t, size_t, void*);
int cuStreamCreate(void**, unsigned);
int cuStreamSynchronize(void*);
int cuStreamBeginCapture_v2(void*, int);
int cuStreamEndCapture(void*, void**);
int cuGraphInstantiateWithFlags(void**, void*, unsigned long long);
int cuGraphLaunch(void*, void*);
int cuLaunchHostFunc(void*, void (*)(void*), void*);
int cuEventCreate(void**, unsigned);
int cuEventRecord(void*, void*);
int cuEventSynchronize(void*);
int cuEventElapsedTime_v2(float*, void*, void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
}

static const char* const kPtx = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.u32 %r6, [%rd2];
  add.u32 %r6, %r6, 1;
  st.global.u32 [%rd2], %r6;
done:
  ret;
}
)";

static int failures;
static bool check(int result, const char* what) {
  if (result != 0) std::printf("FAILED %s: %d\n", what, result), ++failures;
  return result == 0;
}
static void holds(bool so, const char* what) {
  std::printf("%s %s\n", so ? "ok" : "FAILED", what);
  failures += !so;
}

static void* function;
static int add_one(uint64_t data, unsigned n, void* stream) {
  void* parameters[] = {&data, &n};
  return cuLaunchKernel(function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
}

int main() {
  constexpr unsigned n = 1 << 20;
  void *context, *module, *stream, *first, *last, *graph, *ready, *pinned;
  uint64_t device, managed;
  std::vector<unsigned> host(n), back(n);
  for (unsigned i = 0; i < n; ++i) host[i] = i;
  if (!check(cuInit(0), "cuInit") || !check(cuDevicePrimaryCtxRetain(&context, 0), "retain")) return 99;
  check(cuCtxSetCurrent(context), "set current");
  if (!check(cuModuleLoadData(&module, kPtx), "module") || !check(cuModuleGetFunction(&function, module, "add_one"), "function")) return 98;
  check(cuMemAlloc_v2(&device, n * 4), "alloc");
  check(cuMemcpyHtoD_v2(device, host.data(), n * 4), "upload");
  check(add_one(device, n, nullptr), "launch");
  check(cuMemcpyDtoH_v2(back.data(), device, n * 4), "download");
  bool right = true;
  for (unsigned i = 0; i < n; ++i) right = right && back[i] == i + 1;
  holds(right, "a kernel's result");

  check(cuStreamCreate(&stream, 1), "stream");
  check(cuEventCreate(&first, 0), "event");
  check(cuEventCreate(&last, 0), "event");
  check(cuEventRecord(first, stream), "record");
  for (int i = 0; i < 100; ++i) check(add_one(device, n, stream), "launch");
  check(cuEventRecord(last, stream), "record");
  check(cuEventSynchronize(last), "event synchronise");
  float milliseconds = -1;
  check(cuEventElapsedTime_v2(&milliseconds, first, last), "elapsed");
  holds(milliseconds > 0 && milliseconds < 1000, "time between events");

  check(cuMemHostAlloc(&pinned, n * 4, 0), "pinned");
  check(cuMemcpyDtoHAsync_v2(pinned, device, n * 4, stream), "async download");
  check(cuStreamSynchronize(stream), "synchronise");
  holds(static_cast<unsigned*>(pinned)[7] == 108, "pinned download");
  int called = 0;
  check(cuLaunchHostFunc(stream, [](void* p) { *static_cast<int*>(p) = 1; }, &called), "host function");
  check(cuStreamSynchronize(stream), "synchronise");
  holds(called == 1, "host function");

  std::memset(pinned, 0, n * 4);
  check(add_one(reinterpret_cast<uint64_t>(pinned), n, stream), "launch on pinned");
  check(cuStreamSynchronize(stream), "synchronise");
  holds(static_cast<unsigned*>(pinned)[n - 1] == 1, "a kernel writes pinned memory");
  check(cuMemAllocManaged(&managed, 4096, 1), "managed");
  auto* view = reinterpret_cast<unsigned*>(managed);
  view[5] = 41;
  check(add_one(managed, 1024, nullptr), "launch on managed");
  check(cuCtxSynchronize(), "synchronise");
  holds(view[5] == 42, "managed memory");

  check(cuStreamBeginCapture_v2(stream, 0), "begin capture");
  check(cuMemcpyHtoDAsync_v2(device, pinned, 4096, stream), "captured upload");
  check(add_one(device, 1024, stream), "captured launch");
  check(cuMemcpyDtoHAsync_v2(static_cast<char*>(pinned) + 4096, device, 4096, stream), "captured download");
  if (!check(cuStreamEndCapture(stream, &graph), "end capture")) return failures;
  check(cuGraphInstantiateWithFlags(&ready, graph, 0), "instantiate");
  right = true;
  for (unsigned i = 0; i < 3; ++i) {
    static_cast<unsigned*>(pinned)[3] = 10 * i;
    check(cuGraphLaunch(ready, stream), "graph launch");
    check(cuStreamSynchronize(stream), "synchronise");
    right = right && static_cast<unsigned*>(pinned)[1024 + 3] == 10 * i + 1;
  }
  holds(right, "replays take and bring host memory");
  uint64_t more;
  right = true;
  for (int i = 0; i < 50; ++i) {
    right = right && check(cuMemAlloc_v2(&more, 256u << 20), "alloc") && check(cuMemFree_v2(more), "free");
  }
  holds(right, "allocate and free 12.5 GiB in turn");
  check(cuMemFree_v2(device), "free");
  check(cuCtxSynchronize(), "synchronise");
  std::printf("%d failures\n", failures);
  return failures;
}
