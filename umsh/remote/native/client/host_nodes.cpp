// Host nodes of graphs: the graph carries a token, this process runs the function each time the graph reaches the node.
#include <map>
#include <mutex>

#include "call.h"
#include "results.h"
#include "session.h"

using namespace umsh;

namespace {

struct HostNode {  // CUDA_HOST_NODE_PARAMS
  void (*function)(void*);
  void* data;
};

// What each node runs, for queries.
std::mutex mutex;
std::map<void*, HostNode>& nodes() {
  static auto* all = new std::map<void*, HostNode>;
  return *all;
}

uint64_t token_of(const HostNode& node) {
  return session()->callbacks.add([node](int) { node.function(node.data); }, true);
}

int set(Op op, void* exec, void* node, const HostNode* given) {
  if (int error = ready_in_context()) return error;
  if (!given || !given->function) return kInvalidValue;
  Call call(op);
  if (op == kOp_cuGraphExecHostNodeSetParams) call.handle(kKindGraphExec, exec);
  int status = call.handle(kKindGraphNode, node).u64(token_of(*given)).status();
  if (status == kSuccess && op == kOp_cuGraphHostNodeSetParams) {
    std::lock_guard<std::mutex> lock(mutex);
    nodes()[node] = *given;
  }
  return status;
}

}  // namespace

UMSH_EXPORT int cuGraphAddHostNode(void** out, void* graph, void* const* dependencies, size_t count, const HostNode* given) {
  if (int error = ready_in_context()) return error;
  bool bad = !out || !given || !given->function || (count && !dependencies) || count > kPayloadMax / 16;
  if (bad) return kInvalidValue;
  Call call(kOp_cuGraphAddHostNode);
  uint64_t node = call.make(kKindGraphNode);
  call.handle(kKindGraph, graph).blob(dependencies, count * sizeof *dependencies).u64(count).u64(token_of(*given));
  int status = call.status();
  if (status != kSuccess) return status;
  *out = reinterpret_cast<void*>(node);
  std::lock_guard<std::mutex> lock(mutex);
  nodes()[*out] = *given;
  return kSuccess;
}

UMSH_EXPORT int cuGraphHostNodeSetParams(void* node, const HostNode* given) {
  return set(kOp_cuGraphHostNodeSetParams, nullptr, node, given);
}
UMSH_EXPORT int cuGraphExecHostNodeSetParams(void* exec, void* node, const HostNode* given) {
  return set(kOp_cuGraphExecHostNodeSetParams, exec, node, given);
}

UMSH_EXPORT int cuGraphHostNodeGetParams(void* node, HostNode* out) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  std::lock_guard<std::mutex> lock(mutex);
  auto it = nodes().find(node);
  if (it == nodes().end()) return kInvalidHandle;
  *out = it->second;
  return kSuccess;
}
