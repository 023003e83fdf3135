// A program of the runtime API as the compiler would write it: registers a module of the software device by hand.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

struct Dim3 {
  unsigned x, y, z;
};
struct Wrapper {
  int magic, version;
  const void* data;
  void* unused;
};

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(Dim3, Dim3, size_t, void*);
int __cudaPopCallConfiguration(Dim3*, Dim3*, size_t*, void**);
int cudaLaunchKernel(const void*, Dim3, Dim3, void**, size_t, void*);
int cudaLaunchKernel_ptsz(const void*, Dim3, Dim3, void**, size_t, void*);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, size_t, int);
int cudaMemcpyAsync(void*, const void*, size_t, int, void*);
int cudaMemset(void*, int, size_t);
int cudaGetLastError();
int cudaPeekAtLastError();
int cudaGetDeviceCount(int*);
int cudaSetDevice(int);
int cudaDeviceSynchronize();
int cudaStreamCreate(void**);
int cudaStreamSynchronize(void*);
int cudaStreamDestroy(void*);
int cudaStreamBeginCapture(void*, int);
int cudaStreamEndCapture(void*, void**);
int cudaGraphInstantiate(void**, void*, unsigned long long);
int cudaGraphLaunch(void*, void*);
int cudaEventCreate(void**);
int cudaEventRecord(void*, void*);
int cudaEventSynchronize(void*);
int cudaEventElapsedTime(float*, void*, void*);
int cudaLaunchHostFunc(void*, void (*)(void*), void*);
int cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, int);
int cudaMemcpyFromSymbol(void*, const void*, size_t, size_t, int);
int cudaGetSymbolSize(size_t*, const void*);
int cudaGetDeviceProperties(void*, int);
int cudaDeviceReset();
int cudaRuntimeGetVersion(int*);
int cudaPointerGetAttributes(void*, const void*);
const char* cudaGetErrorName(int);
int cudaImportExternalMemory(void**, const void*);
}

namespace {

const char kModule[] =
    "umsh-software-module 1\nkernel add add 8,8,8,8\nkernel increment increment 8\nglobal word 8\n";
const char add_stub = 0, increment_stub = 0, missing_stub = 0;
char word_stub[8];
int failed = 0;

void expect(const char* what, bool ok) {
  std::printf("%s %s\n", ok ? "PASS" : "FAIL", what);
  failed += !ok;
}

void adds(void* stream) {
  constexpr size_t kCount = 1000;
  std::vector<float> a(kCount, 1.5f), b(kCount, 2.0f), out(kCount);
  void *da, *db, *dout;
  expect("malloc", !cudaMalloc(&da, 4 * kCount) && !cudaMalloc(&db, 4 * kCount) && !cudaMalloc(&dout, 4 * kCount));
  expect("upload", !cudaMemcpy(da, a.data(), 4 * kCount, 1) && !cudaMemcpy(db, b.data(), 4 * kCount, 4));
  uint64_t n = kCount;
  void* arguments[] = {&da, &db, &dout, &n};
  Dim3 grid{}, block{};
  size_t shared = 1;
  void* on = nullptr;
  __cudaPushCallConfiguration({4, 1, 1}, {256, 1, 1}, 0, stream);
  expect("configuration", !__cudaPopCallConfiguration(&grid, &block, &shared, &on) && block.x == 256 && on == stream);
  expect("launch", !cudaLaunchKernel(&add_stub, grid, block, arguments, shared, on));
  expect("download", !cudaMemcpyAsync(out.data(), dout, 4 * kCount, 2, stream) && !cudaStreamSynchronize(stream));
  expect("sum", out[0] == 3.5f && out[kCount - 1] == 3.5f);
  expect("free", !cudaFree(da) && !cudaFree(db) && !cudaFree(dout) && !cudaFree(nullptr));
}

void graphs(void* stream) {
  void *counter, *graph, *exec, *begin, *end;
  uint64_t value = 0;
  float ms = -1;
  cudaMalloc(&counter, 8);
  cudaMemset(counter, 0, 8);
  void* arguments[] = {&counter};
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  expect("capture", !cudaStreamBeginCapture(stream, 0));
  cudaLaunchKernel(&increment_stub, {1, 1, 1}, {1, 1, 1}, arguments, 0, stream);
  expect("graph", !cudaStreamEndCapture(stream, &graph) && !cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, stream);
  cudaEventRecord(end, stream);
  expect("events", !cudaEventSynchronize(end) && !cudaEventElapsedTime(&ms, begin, end) && ms >= 0);
  int called = 0;
  expect("host function", !cudaLaunchHostFunc(stream, [](void* p) { ++*static_cast<int*>(p); }, &called) &&
                              !cudaStreamSynchronize(stream) && called == 1);
  expect("per-thread launch", !cudaLaunchKernel_ptsz(&increment_stub, {1, 1, 1}, {1, 1, 1}, arguments, 0, nullptr));
  expect("synchronize", !cudaDeviceSynchronize() && !cudaMemcpy(&value, counter, 8, 2) && value == 4);
  expect("capture left no error", cudaGetLastError() == 0);
}

void errors() {
  void* pointer = nullptr;
  expect("kind", cudaMemcpy(&pointer, &pointer, 8, 9) == 21 && cudaPeekAtLastError() == 21 && cudaGetLastError() == 21);
  expect("cleared", cudaGetLastError() == 0);
  expect("unknown device", cudaSetDevice(1000) == 101 && cudaGetLastError() == 101);
  expect("unknown kernel", cudaLaunchKernel(&missing_stub, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr) == 98);
  expect("name", !std::strcmp(cudaGetErrorName(1), "cudaErrorInvalidValue"));
  expect("unsupported", cudaImportExternalMemory(&pointer, nullptr) == 801);
  cudaGetLastError();
}

void symbols() {
  uint64_t in = 77, out = 0;
  size_t nbytes = 0;
  expect("symbol size", !cudaGetSymbolSize(&nbytes, word_stub) && nbytes == 8);
  expect("symbol", !cudaMemcpyToSymbol(word_stub, &in, 8, 0, 1) && !cudaMemcpyFromSymbol(&out, word_stub, 8, 0, 2) &&
                       out == 77);
  expect("past the symbol", cudaMemcpyToSymbol(word_stub, &in, 8, 1, 1) == 1);
  cudaGetLastError();
}

}  // namespace

int main() {
  Wrapper wrapper{0x466243B1, 1, kModule, nullptr};
  int count = 0, version = 0;
  void* stream;
  void** handle = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(handle, &add_stub, nullptr, "add", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFunction(handle, &increment_stub, nullptr, "increment", -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterFunction(handle, &missing_stub, nullptr, "missing", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterVar(handle, word_stub, nullptr, "word", 0, 8, 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  expect("count", !cudaGetDeviceCount(&count) && count > 0);
  expect("version", !cudaRuntimeGetVersion(&version) && version == 13000);
  expect("stream", !cudaStreamCreate(&stream));
  adds(stream);
  graphs(stream);
  symbols();
  errors();
  alignas(8) char properties[1008];
  expect("properties", !cudaGetDeviceProperties(properties, 0) && properties[0] != 0);
  expect("destroy", !cudaStreamDestroy(stream));
  void* again = nullptr;
  expect("reset", !cudaDeviceReset() && !cudaMalloc(&again, 64) && !cudaFree(again));
  __cudaUnregisterFatBinary(handle);
  return failed ? 1 : 0;
}
