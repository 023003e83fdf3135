// Graph nodes whose parameters differ from the driver's.
#include "cudart/runtime.h"

using namespace umsh::cudart;

namespace {

struct KernelNode {
  void* function;
  Dim3 grid, block;
  unsigned shared;
  void** parameters;
  void** extra;
};

struct DriverKernelNode {
  KernelNode node;
  void *kernel, *context;
};

int translate(const KernelNode* from, DriverKernelNode& to) {
  if (!from) return kInvalidValue;
  to = {*from, nullptr, nullptr};
  return function_of(from->function, &to.node.function);
}

int current(void** there) {
  static Symbol f{"cuCtxGetCurrent"};
  int error = context();
  return error ? error : f(there);
}

Copy3D straight(void* to, const void* from, size_t n, int kind) {
  Copy3D copy{};
  copy.from = {const_cast<void*>(from), n, n, 1};
  copy.to = {to, n, n, 1};
  copy.extent = {n, 1, 1};
  copy.kind = kind;
  return copy;
}

}  // namespace

UMSH_EXPORT int cudaGraphAddKernelNode(void** node, void* graph, void* const* after, size_t n, const KernelNode* from) {
  static Symbol f{"cuGraphAddKernelNode_v2"};
  DriverKernelNode to{};
  int error = translate(from, to);
  return error ? done(error) : lower(f, node, graph, after, n, &to);
}

UMSH_EXPORT int cudaGraphKernelNodeSetParams(void* node, const KernelNode* from) {
  static Symbol f{"cuGraphKernelNodeSetParams_v2"};
  DriverKernelNode to{};
  int error = translate(from, to);
  return error ? done(error) : lower(f, node, &to);
}

UMSH_EXPORT int cudaGraphExecKernelNodeSetParams(void* exec, void* node, const KernelNode* from) {
  static Symbol f{"cuGraphExecKernelNodeSetParams_v2"};
  DriverKernelNode to{};
  int error = translate(from, to);
  return error ? done(error) : lower(f, exec, node, &to);
}

UMSH_EXPORT int cudaGraphKernelNodeGetParams(void* node, KernelNode* out) {
  static Symbol f{"cuGraphKernelNodeGetParams_v2"};
  DriverKernelNode from{};
  int error = lower(f, node, &from);
  if (!error) *out = from.node;
  if (!error && !out->function) out->function = from.kernel;
  return error;
}

UMSH_EXPORT int cudaGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t n, const Copy3D* from) {
  static Symbol f{"cuGraphAddMemcpyNode"};
  DriverCopy to;
  void* there = nullptr;
  if (!from) return done(kInvalidValue);
  int error = driver_copy(*from, to);
  if (!error) error = current(&there);
  return error ? done(error) : lower(f, node, graph, after, n, &to, there);
}

UMSH_EXPORT int cudaGraphMemcpyNodeSetParams(void* node, const Copy3D* from) {
  static Symbol f{"cuGraphMemcpyNodeSetParams"};
  DriverCopy to;
  int error = from ? driver_copy(*from, to) : kInvalidValue;
  return error ? done(error) : lower(f, node, &to);
}

UMSH_EXPORT int cudaGraphExecMemcpyNodeSetParams(void* exec, void* node, const Copy3D* from) {
  static Symbol f{"cuGraphExecMemcpyNodeSetParams"};
  DriverCopy to;
  void* there = nullptr;
  int error = from ? driver_copy(*from, to) : kInvalidValue;
  if (!error) error = current(&there);
  return error ? done(error) : lower(f, exec, node, &to, there);
}

UMSH_EXPORT int cudaGraphAddMemcpyNode1D(void** node, void* graph, void* const* after, size_t n, void* to,
                                         const void* from, size_t nbytes, int kind) {
  Copy3D copy = straight(to, from, nbytes, kind);
  return cudaGraphAddMemcpyNode(node, graph, after, n, &copy);
}

UMSH_EXPORT int cudaGraphMemcpyNodeSetParams1D(void* node, void* to, const void* from, size_t nbytes, int kind) {
  Copy3D copy = straight(to, from, nbytes, kind);
  return cudaGraphMemcpyNodeSetParams(node, &copy);
}

UMSH_EXPORT int cudaGraphExecMemcpyNodeSetParams1D(void* exec, void* node, void* to, const void* from, size_t nbytes,
                                                   int kind) {
  Copy3D copy = straight(to, from, nbytes, kind);
  return cudaGraphExecMemcpyNodeSetParams(exec, node, &copy);
}

UMSH_EXPORT int cudaGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t n, const void* parameters) {
  static Symbol f{"cuGraphAddMemsetNode"};
  void* there = nullptr;
  int error = current(&there);
  return error ? done(error) : lower(f, node, graph, after, n, parameters, there);
}

UMSH_EXPORT int cudaGraphExecMemsetNodeSetParams(void* exec, void* node, const void* parameters) {
  static Symbol f{"cuGraphExecMemsetNodeSetParams"};
  void* there = nullptr;
  int error = current(&there);
  return error ? done(error) : lower(f, exec, node, parameters, there);
}
