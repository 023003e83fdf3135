// Kernel nodes of graphs. On the wire: CUDA_KERNEL_NODE_PARAMS without its pointers, then the packed parameters.
#include "generated/serve.h"
#include "server/session.h"
#include "wire/launch.h"

namespace umsh {

namespace {

constexpr int kInvalid = 1, kUnsupported = 801;

// A node's parameters as they came, with the list that hands the packed ones to the driver.
struct Given {
  KernelNode node{};
  std::vector<char> packed;
  size_t nbytes = 0;
  void* list[5] = {};
  bool well_formed = false;

  explicit Given(Reader& in) {
    bool head = in.exact(&node, sizeof node);
    Blob blob = in.blob();
    well_formed = head && blob.data && blob.nbytes <= kParametersMax;
    if (!well_formed) return;
    packed.assign(blob.data, blob.data + blob.nbytes);
    nbytes = blob.nbytes;
  }
  int resolve(Session& s) {
    int error = 0;
    node.function = s.lookup(kKindFunction, reinterpret_cast<uint64_t>(node.function), &error);
    if (!error) node.kernel = s.lookup(kKindKernel, reinterpret_cast<uint64_t>(node.kernel), &error);
    if (!error) node.context = s.lookup(kKindContext, reinterpret_cast<uint64_t>(node.context), &error);
    node.parameters = node.extra = nullptr;
    if (nbytes == 0) return error;
    list[0] = reinterpret_cast<void*>(uintptr_t{1});  // CU_LAUNCH_PARAM_BUFFER_POINTER
    list[1] = packed.data();
    list[2] = reinterpret_cast<void*>(uintptr_t{2});  // CU_LAUNCH_PARAM_BUFFER_SIZE
    list[3] = &nbytes;
    node.extra = list;
    return error;
  }
};

// Packs what the driver shows of a node, parameter by parameter.
int pack(Session& s, const KernelNode& node, std::vector<char>& out) {
  for (size_t i = 0;; ++i) {
    size_t offset = 0, nbytes = 0;
    int status = node.function ? invoke(s.driver.cuFuncGetParamInfo, kUnsupported, node.function, i, &offset, &nbytes)
                               : invoke(s.driver.cuKernelGetParamInfo, kUnsupported, node.kernel, i, &offset, &nbytes);
    if (status == kInvalid) return 0;  // one past the last
    if (status != 0) return status;
    if (offset + nbytes > kParametersMax) return kInvalid;
    if (out.size() < offset + nbytes) out.resize(offset + nbytes);
    if (node.parameters) std::memcpy(out.data() + offset, node.parameters[i], nbytes);
    else if (node.extra) std::memcpy(out.data() + offset, static_cast<char*>(node.extra[1]) + offset, nbytes);
    else return kUnsupported;
  }
}

}  // namespace

int serve_cuGraphAddKernelNode_v2(Session& s, Reader& in, Writer&) {
  uint64_t id = in.u64(), graph_id = in.u64();
  Blob blob = in.blob();
  uint64_t count = in.u64();
  Given given(in);
  if (!in.finished() || !given.well_formed) return kWireError;
  int error = 0;
  void* graph = s.lookup(kKindGraph, graph_id, &error);
  InHandlesOf<Session> dependencies(s, kKindGraphNode, blob, count, &error);
  if (!dependencies.fits) return kWireError;
  if (!error) error = given.resolve(s);
  if (error) return error;
  void* node = nullptr;
  size_t n = dependencies.handles() ? count : 0;
  int status = invoke(s.driver.cuGraphAddKernelNode_v2, kUnsupported, &node, graph, dependencies.handles(), n, &given.node);
  if (status == 0) s.add(kKindGraphNode, id, node);
  return status;
}

int serve_cuGraphKernelNodeSetParams_v2(Session& s, Reader& in, Writer&) {
  uint64_t id = in.u64();
  Given given(in);
  if (!in.finished() || !given.well_formed) return kWireError;
  int error = 0;
  void* node = s.lookup(kKindGraphNode, id, &error);
  if (!error) error = given.resolve(s);
  return error ? error : invoke(s.driver.cuGraphKernelNodeSetParams_v2, kUnsupported, node, &given.node);
}

int serve_cuGraphExecKernelNodeSetParams_v2(Session& s, Reader& in, Writer&) {
  uint64_t exec_id = in.u64(), id = in.u64();
  Given given(in);
  if (!in.finished() || !given.well_formed) return kWireError;
  int error = 0;
  void* exec = s.lookup(kKindGraphExec, exec_id, &error);
  void* node = s.lookup(kKindGraphNode, id, &error);
  if (!error) error = given.resolve(s);
  return error ? error : invoke(s.driver.cuGraphExecKernelNodeSetParams_v2, kUnsupported, exec, node, &given.node);
}

int serve_cuGraphKernelNodeGetParams_v2(Session& s, Reader& in, Writer& out) {
  uint64_t id = in.u64();
  if (!in.finished()) return kWireError;
  int error = 0;
  void* handle = s.lookup(kKindGraphNode, id, &error);
  if (error) return error;
  KernelNode node{};
  int status = invoke(s.driver.cuGraphKernelNodeGetParams_v2, kUnsupported, handle, &node);
  if (status != 0) return status;
  std::vector<char> packed;
  if ((status = pack(s, node, packed)) != 0) return status;
  node.function = reinterpret_cast<void*>(s.intern(kKindFunction, node.function));
  node.kernel = reinterpret_cast<void*>(s.intern(kKindKernel, node.kernel));
  node.context = reinterpret_cast<void*>(s.intern(kKindContext, node.context));
  node.parameters = node.extra = nullptr;
  out.blob(&node, sizeof node);
  static const char nothing = 0;
  out.blob(packed.empty() ? &nothing : packed.data(), packed.size());
  return 0;
}

}  // namespace umsh
