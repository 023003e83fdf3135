// Host nodes of graphs: the driver's function asks the client to run the one behind a token.
#include <memory>

#include "generated/serve.h"
#include "server/session.h"

namespace umsh {

namespace {

struct HostNode {  // CUDA_HOST_NODE_PARAMS
  void (*function)(void*);
  void* data;
};
struct Token {
  HostCalls* calls;
  uint64_t token;
};

void run(void* data) {
  auto* token = static_cast<Token*>(data);
  token->calls->call(token->token);
}

// A graph may run at any time until the session ends, so what its nodes point to is never given back.
HostNode node_of(Session& s, uint64_t token) { return {run, new Token{&s.host_calls, token}}; }

}  // namespace

int serve_cuGraphAddHostNode(Session& s, Reader& in, Writer&) {
  uint64_t id = in.u64(), graph_id = in.u64();
  Blob blob = in.blob();
  uint64_t count = in.u64(), token = in.u64();
  if (!in.finished()) return kWireError;
  int error = 0;
  void* graph = s.lookup(kKindGraph, graph_id, &error);
  InHandlesOf<Session> dependencies(s, kKindGraphNode, blob, count, &error);
  if (!dependencies.fits) return kWireError;
  if (error) return error;
  HostNode params = node_of(s, token);
  void* node = nullptr;
  size_t n = dependencies.handles() ? count : 0;
  int status = invoke(s.driver.cuGraphAddHostNode, 801, &node, graph, dependencies.handles(), n, &params);
  if (status == 0) s.add(kKindGraphNode, id, node);
  return status;
}

int serve_cuGraphHostNodeSetParams(Session& s, Reader& in, Writer&) {
  uint64_t id = in.u64(), token = in.u64();
  if (!in.finished()) return kWireError;
  int error = 0;
  void* node = s.lookup(kKindGraphNode, id, &error);
  if (error) return error;
  HostNode params = node_of(s, token);
  return invoke(s.driver.cuGraphHostNodeSetParams, 801, node, &params);
}

int serve_cuGraphExecHostNodeSetParams(Session& s, Reader& in, Writer&) {
  uint64_t exec_id = in.u64(), id = in.u64(), token = in.u64();
  if (!in.finished()) return kWireError;
  int error = 0;
  void* exec = s.lookup(kKindGraphExec, exec_id, &error);
  void* node = s.lookup(kKindGraphNode, id, &error);
  if (error) return error;
  HostNode params = node_of(s, token);
  return invoke(s.driver.cuGraphExecHostNodeSetParams, 801, exec, node, &params);
}

}  // namespace umsh
