// Kernel nodes of graphs: their parameters travel packed, as those of a launch do.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "call.h"
#include "function.h"
#include "results.h"
#include "session.h"
#include "wire/attributes.h"

using namespace umsh;

namespace {

constexpr size_t kFirstVersion = 56;

// A node's parameters, ready to be sent.
struct Packed {
  KernelNode head{};
  std::vector<char> bytes;
};

int pack_node(const void* given, size_t nbytes, Packed& out) {
  if (!given) return kInvalidValue;
  if (int error = ready_in_context()) return error;
  std::memcpy(&out.head, given, nbytes);
  const void* code = out.head.function ? out.head.function : out.head.kernel;
  if (!code) return kInvalidValue;
  int error;
  const Layout* layout = layout_of(code, error);
  if (!layout) return error;
  out.bytes.resize(layout->nbytes + 1);
  error = pack_parameters(*layout, out.head.parameters, out.head.extra, out.bytes.data());
  out.bytes.resize(layout->nbytes);
  out.head.parameters = out.head.extra = nullptr;
  return error;
}

void put(Call& call, const Packed& packed) {
  call.blob(&packed.head, sizeof packed.head).blob(packed.bytes.data(), packed.bytes.size());
}

int add_node(void** out, void* graph, void* const* dependencies, size_t count, const void* given, size_t nbytes) {
  Packed packed;
  if (!out || (count && !dependencies) || count > kPayloadMax / 16) return kInvalidValue;
  if (int error = pack_node(given, nbytes, packed)) return error;
  Call call(kOp_cuGraphAddKernelNode_v2);
  uint64_t node = call.make(kKindGraphNode);
  call.handle(kKindGraph, graph).blob(dependencies, count * sizeof *dependencies).u64(count);
  put(call, packed);
  int status = call.status();
  if (status == kSuccess) *out = reinterpret_cast<void*>(node);
  return status;
}

int set_node(void* node, const void* given, size_t nbytes) {
  Packed packed;
  if (int error = pack_node(given, nbytes, packed)) return error;
  Call call(kOp_cuGraphKernelNodeSetParams_v2);
  call.handle(kKindGraphNode, node);
  put(call, packed);
  return call.status();
}

int set_in_exec(void* exec, void* node, const void* given, size_t nbytes) {
  Packed packed;
  if (int error = pack_node(given, nbytes, packed)) return error;
  Call call(kOp_cuGraphExecKernelNodeSetParams_v2);
  call.handle(kKindGraphExec, exec).handle(kKindGraphNode, node);
  put(call, packed);
  return call.status();
}

// What a query gave, for as long as the program may look at it: until the next query of the same node.
struct Shown {
  std::vector<char> bytes;
  std::vector<void*> parameters;
};

int get_node(void* node, void* out, size_t nbytes) {
  if (!out) return kInvalidValue;
  Call call(kOp_cuGraphKernelNodeGetParams_v2);
  Reply reply = call.handle(kKindGraphNode, node).reply();
  if (reply.result != kSuccess) return reply.result;
  KernelNode head{};
  Blob packed;
  if (!reply.bytes(&head, sizeof head) || (packed = reply.view(), !reply.ok())) return kDeviceUnavailable;
  int error;
  const Layout* layout = layout_of(head.function ? head.function : head.kernel, error);
  if (!layout) return error;
  if (packed.nbytes != layout->nbytes) return kInvalidValue;
  static std::mutex mutex;
  static auto* all = new std::map<void*, Shown>;
  std::lock_guard<std::mutex> lock(mutex);
  Shown& shown = (*all)[node];
  shown.bytes.assign(packed.data, packed.data + packed.nbytes);
  shown.parameters.clear();
  for (const Parameter& p : layout->parameters) shown.parameters.push_back(shown.bytes.data() + p.offset);
  head.parameters = shown.parameters.data();
  std::memcpy(out, &head, nbytes);
  return kSuccess;
}

}  // namespace

UMSH_EXPORT int cuGraphAddKernelNode(void** out, void* graph, void* const* dependencies, size_t count, const void* p) {
  return add_node(out, graph, dependencies, count, p, kFirstVersion);
}
UMSH_EXPORT int cuGraphAddKernelNode_v2(void** out, void* graph, void* const* dependencies, size_t count, const void* p) {
  return add_node(out, graph, dependencies, count, p, sizeof(KernelNode));
}
UMSH_EXPORT int cuGraphKernelNodeSetParams(void* node, const void* p) { return set_node(node, p, kFirstVersion); }
UMSH_EXPORT int cuGraphKernelNodeSetParams_v2(void* node, const void* p) { return set_node(node, p, sizeof(KernelNode)); }
UMSH_EXPORT int cuGraphExecKernelNodeSetParams(void* exec, void* node, const void* p) {
  return set_in_exec(exec, node, p, kFirstVersion);
}
UMSH_EXPORT int cuGraphExecKernelNodeSetParams_v2(void* exec, void* node, const void* p) {
  return set_in_exec(exec, node, p, sizeof(KernelNode));
}
UMSH_EXPORT int cuGraphKernelNodeGetParams(void* node, void* out) { return get_node(node, out, kFirstVersion); }
UMSH_EXPORT int cuGraphKernelNodeGetParams_v2(void* node, void* out) { return get_node(node, out, sizeof(KernelNode)); }
