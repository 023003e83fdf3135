// A sample of ours for a real device: nvcc -std=c++17 -cudart shared vector_add.cu -o vector_add
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace {

constexpr int kCount = 1 << 16;
int failed = 0;

void expect(const char* what, bool ok) {
  std::printf("%s %s (%s)\n", ok ? "PASS" : "FAIL", what, cudaGetErrorName(cudaGetLastError()));
  std::fflush(stdout);
  failed += !ok;
}

__device__ int word = 5;

__global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
__global__ void scale_word(int by) { word *= by; }
__global__ void increment(int* values, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += 1;
}
__global__ void fetch(cudaTextureObject_t texture, float* out, int w, int h) {
  int x = threadIdx.x, y = blockIdx.x;
  if (x < w && y < h) out[y * w + x] = tex2D<float>(texture, x, y);
}
__global__ void all_blocks(int* counter, int* seen) {
  if (threadIdx.x == 0) atomicAdd(counter, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) seen[blockIdx.x] = *counter;
}

void vectors(cudaStream_t stream) {
  std::vector<float> a(kCount, 1.5f), b(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) b[i] = float(i);
  float *da, *db, *dout, ms = -1;
  size_t nbytes = kCount * sizeof(float);
  cudaMalloc(&da, nbytes), cudaMalloc(&db, nbytes), cudaMalloc(&dout, nbytes);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  cudaMemcpyAsync(da, a.data(), nbytes, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(db, b.data(), nbytes, cudaMemcpyDefault, stream);
  cudaEventRecord(begin, stream);
  add<<<kCount / 256, 256, 0, stream>>>(da, db, dout, kCount);
  cudaEventRecord(end, stream);
  cudaMemcpyAsync(out.data(), dout, nbytes, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  bool ok = cudaEventElapsedTime(&ms, begin, end) == cudaSuccess && ms >= 0;
  for (int i = 0; i < kCount; ++i) ok = ok && out[i] == 1.5f + float(i);
  expect("vector add, stream, events", ok);
  cudaFree(da), cudaFree(db), cudaFree(dout);
}

void graph_and_callback(cudaStream_t stream) {
  int *values, out[64] = {}, called = 0;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaMalloc(&values, sizeof out);
  cudaMemset(values, 0, sizeof out);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  increment<<<1, 64, 0, stream>>>(values, 64);
  increment<<<1, 64, 0, stream>>>(values, 64);
  cudaStreamEndCapture(stream, &graph);
  bool ok = cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
  for (int i = 0; i < 5; ++i) cudaGraphLaunch(exec, stream);
  cudaLaunchHostFunc(stream, [](void* p) { *static_cast<int*>(p) = 1; }, &called);
  cudaStreamSynchronize(stream);
  cudaMemcpy(out, values, sizeof out, cudaMemcpyDeviceToHost);
  expect("graph", ok && out[0] == 10 && out[63] == 10);
  expect("host function", called == 1);
  cudaFree(values);
}

void symbols_and_properties() {
  int out = 0, blocks = 0;
  cudaFuncAttributes attributes{};
  cudaDeviceProp properties{};
  scale_word<<<1, 1>>>(3);
  cudaMemcpyFromSymbol(&out, word, sizeof out);
  expect("symbol", out == 15);
  bool ok = cudaFuncGetAttributes(&attributes, add) == cudaSuccess && attributes.numRegs > 0;
  expect("function attributes", ok && attributes.maxThreadsPerBlock == 1024);
  ok = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0) == cudaSuccess && blocks > 0;
  expect("occupancy", ok);
  ok = cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.warpSize == 32;
  std::printf("device %s %d.%d\n", properties.name, properties.major, properties.minor);
  expect("properties", ok && properties.totalGlobalMem > 0 && properties.multiProcessorCount > 0);
}

void texture() {
  constexpr int kWidth = 32, kHeight = 16;
  std::vector<float> in(kWidth * kHeight), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  auto channels = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  float* device;
  cudaMallocArray(&array, &channels, kWidth, kHeight);
  cudaMemcpy2DToArray(array, 0, 0, in.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc how{};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t object = 0;
  bool ok = cudaCreateTextureObject(&object, &resource, &how, nullptr) == cudaSuccess;
  cudaMalloc(&device, out.size() * 4);
  fetch<<<kHeight, kWidth>>>(object, device, kWidth, kHeight);
  cudaMemcpy(out.data(), device, out.size() * 4, cudaMemcpyDeviceToHost);
  expect("texture", ok && out == in);
}

void cooperative() {
  int *counter, *seen, out[8] = {};
  cudaMalloc(&counter, 4), cudaMalloc(&seen, sizeof out);
  cudaMemset(counter, 0, 4);
  void* arguments[] = {&counter, &seen};
  cudaLaunchCooperativeKernel((void*)all_blocks, dim3(8), dim3(64), arguments, 0, nullptr);
  cudaMemcpy(out, seen, sizeof out, cudaMemcpyDeviceToHost);
  expect("cooperative launch", out[0] == 8 && out[7] == 8);
}

void host_memory() {
  int *managed, *mapped, *on_device;
  bool ok = cudaMallocManaged(&managed, 256) == cudaSuccess;
  if (ok) {
    for (int i = 0; i < 64; ++i) managed[i] = i;
    increment<<<1, 64>>>(managed, 64);
    cudaDeviceSynchronize();
  }
  expect("managed memory", ok && managed[63] == 64);
  ok = cudaHostAlloc(&mapped, 256, cudaHostAllocMapped) == cudaSuccess;
  ok = ok && cudaHostGetDevicePointer(&on_device, mapped, 0) == cudaSuccess;
  if (ok) {
    for (int i = 0; i < 64; ++i) mapped[i] = i;
    increment<<<1, 64>>>(on_device, 64);
    cudaDeviceSynchronize();
  }
  expect("mapped memory", ok && mapped[63] == 64);
}

}  // namespace

int main() {
  cudaStream_t stream;
  expect("stream", cudaStreamCreate(&stream) == cudaSuccess);
  vectors(stream);
  graph_and_callback(stream);
  symbols_and_properties();
  texture();
  cooperative();
  host_memory();
  return failed ? 1 : 0;
}
