// Stream capture as a state machine, and graphs.
#include <algorithm>
#include <cstring>

#include "device.h"

namespace software {

Node* Graph::add(NodeType type, std::function<void(Context*)> run, std::vector<size_t> after) {
  auto node = std::make_unique<Node>();
  node->type = type;
  node->run = std::move(run);
  node->after = std::move(after);
  node->graph = this;
  node->index = nodes.size();
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

namespace {
thread_local CaptureMode thread_mode = kCaptureGlobal;

Node* find_node(void* handle) {
  Node* found = nullptr;
  graphs().each([&](Graph& graph) {
    for (auto& node : graph.nodes)
      if (node.get() == handle) found = node.get();
  });
  return found;
}

// Dependencies given as handles, as indices; false when one is not of this graph.
bool indices(Graph& graph, void* const* nodes, size_t count, std::vector<size_t>& out) {
  for (size_t i = 0; i < count; ++i) {
    Node* node = find_node(nodes[i]);
    if (!node || node->graph != &graph) return false;
    out.push_back(node->index);
  }
  return true;
}

int add_node(void** out, void* graph_handle, void* const* deps, size_t count, NodeType type,
             std::function<void(Context*)> run, const void* params, size_t nbytes) {
  Graph* graph = graphs().find(graph_handle);
  std::vector<size_t> after;
  if (!graph) return kInvalidHandle;
  if (!out || (count && !deps) || !indices(*graph, deps, count, after)) return kInvalidValue;
  Node* node = graph->add(type, std::move(run), std::move(after));
  if (params) node->params.assign(static_cast<const char*>(params), static_cast<const char*>(params) + nbytes);
  *out = node;
  return kSuccess;
}

std::unique_ptr<GraphExec> flatten(const Graph& graph) {
  // Nodes are only ever made after the nodes they depend on, so their order of creation keeps every dependency.
  auto exec = std::make_unique<GraphExec>();
  for (const auto& node : graph.nodes) exec->runs.push_back(node->run);
  return exec;
}

void leave(Capture& capture) {
  streams().each([&](Stream& stream) {
    if (stream.capture.get() == &capture) stream.capture = nullptr;
  });
}
}  // namespace

int unsafe_during_capture() {
  if (thread_mode == kCaptureRelaxed) return kSuccess;
  std::lock_guard<std::mutex> lock(capture_mutex());
  int error = kSuccess;
  streams().each([&](Stream& stream) {
    if (!stream.capture || stream.capture->origin != &stream) return;
    Capture& capture = *stream.capture;
    bool mine = capture.thread == std::this_thread::get_id();
    bool forbidden = capture.mode == kCaptureGlobal || (capture.mode == kCaptureThreadLocal && mine);
    if (!forbidden || capture.status != CaptureStatus::kActive) return;
    capture.status = CaptureStatus::kInvalidated;
    error = kCaptureUnsupported;
  });
  return error;
}

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
using Ptr = unsigned long long;
extern "C" {

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode || *mode < 0 || *mode > 2) return kInvalidValue;
  CaptureMode before = thread_mode;
  thread_mode = CaptureMode(*mode);
  *mode = before;
  return kSuccess;
}

int cuStreamBeginCapture_v2(void* handle, int mode) {
  if (int error = ready()) return error;
  if (mode < 0 || mode > 2) return kInvalidValue;
  if (reinterpret_cast<uintptr_t>(handle) <= 1) return kCaptureUnsupported;  // the legacy stream cannot be captured
  Stream* stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  static std::atomic<uint64_t> next{1};
  std::lock_guard<std::mutex> lock(capture_mutex());
  if (stream->capture) return kInvalidValue;
  auto capture = std::make_shared<Capture>();
  capture->id = next++;
  capture->mode = CaptureMode(mode);
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = graphs().add(std::make_unique<Graph>());
  capture->tips[stream] = {};
  stream->capture = capture;
  return kSuccess;
}

int cuStreamEndCapture(void* handle, void** out) {
  if (int error = ready()) return error;
  Stream* stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (!out) return kInvalidValue;
  std::lock_guard<std::mutex> lock(capture_mutex());
  CapturePtr capture = stream->capture;
  if (!capture) return kInvalidValue;
  if (capture->origin != stream) return kCaptureUnmatched;
  if (capture->mode != kCaptureRelaxed && capture->thread != std::this_thread::get_id()) return kCaptureWrongThread;
  int result = capture->status == CaptureStatus::kActive ? kSuccess : kCaptureInvalidated;
  std::unordered_set<size_t> joined;
  for (auto& node : capture->graph->nodes) joined.insert(node->after.begin(), node->after.end());
  for (auto& tip : capture->tips)
    for (size_t index : tip.second)
      if (tip.first != stream && !joined.count(index)) {
        auto& own = capture->tips[stream];
        if (std::find(own.begin(), own.end(), index) == own.end()) result = result ? result : int(kCaptureUnjoined);
      }
  leave(*capture);
  *out = result ? nullptr : capture->graph;
  if (result) graphs().remove(capture->graph);
  return result;
}

int cuStreamIsCapturing(void* handle, int* out) {
  Stream* stream = resolve(handle);
  if (!stream || !out) return stream ? kInvalidValue : kInvalidHandle;
  std::lock_guard<std::mutex> lock(capture_mutex());
  *out = stream->capture ? int(stream->capture->status) : 0;
  return kSuccess;
}
int cuStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void** graph, const void***, size_t* count) {
  Stream* stream = resolve(handle);
  if (!stream || !status) return stream ? kInvalidValue : kInvalidHandle;
  std::lock_guard<std::mutex> lock(capture_mutex());
  *status = stream->capture ? int(stream->capture->status) : 0;
  if (stream->capture && id) *id = stream->capture->id;
  if (stream->capture && graph) *graph = stream->capture->graph;
  if (count) *count = 0;
  return kSuccess;
}

int cuGraphCreate(void** out, unsigned flags) {
  if (int error = ready()) return error;
  if (!out || flags) return kInvalidValue;
  *out = graphs().add(std::make_unique<Graph>());
  return kSuccess;
}
int cuGraphDestroy(void* handle) { return graphs().remove(handle) ? kSuccess : kInvalidHandle; }
int cuGraphClone(void** out, void* handle) {
  Graph* graph = graphs().find(handle);
  if (!graph || !out) return kInvalidHandle;
  auto copy = std::make_unique<Graph>();
  for (auto& node : graph->nodes) copy->add(node->type, node->run, node->after)->params = node->params;
  *out = graphs().add(std::move(copy));
  return kSuccess;
}
int cuGraphGetNodes(void* handle, void** nodes, size_t* count) {
  Graph* graph = graphs().find(handle);
  if (!graph || !count) return kInvalidHandle;
  if (!nodes) {
    *count = graph->nodes.size();
    return kSuccess;
  }
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
  if (*count > graph->nodes.size()) *count = graph->nodes.size();
  return kSuccess;
}
int cuGraphNodeGetType(void* handle, int* out) {
  Node* node = find_node(handle);
  if (!node || !out) return kInvalidHandle;
  *out = int(node->type);
  return kSuccess;
}

int cuGraphAddEmptyNode(void** out, void* graph, void* const* deps, size_t count) {
  return add_node(out, graph, deps, count, NodeType::kEmpty, [](Context*) {}, nullptr, 0);
}

struct HostParams {
  void (*function)(void*);
  void* data;
};
int cuGraphAddHostNode(void** out, void* graph, void* const* deps, size_t count, const HostParams* p) {
  if (!p || !p->function) return kInvalidValue;
  return add_node(out, graph, deps, count, NodeType::kHost, [q = *p](Context*) { q.function(q.data); }, p, sizeof *p);
}

struct MemsetParams {
  Ptr dst;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
};
int cuGraphAddMemsetNode(void** out, void* graph, void* const* deps, size_t count, const MemsetParams* p, void*) {
  if (!p || (p->element != 1 && p->element != 2 && p->element != 4) || p->height == 0) return kInvalidValue;
  if (!device_range(p->dst, p->pitch * (p->height - 1) + p->width * p->element)) return kInvalidValue;
  auto run = [q = *p](Context*) {
    for (size_t y = 0; y < q.height; ++y)
      for (size_t x = 0; x < q.width; ++x)
        std::memcpy(reinterpret_cast<char*>(q.dst) + y * q.pitch + x * q.element, &q.value, q.element);
  };
  return add_node(out, graph, deps, count, NodeType::kMemset, run, p, sizeof *p);
}

struct KernelParams {
  void* function;
  unsigned grid[3], block[3], shared;
  void **params, **extra;
  void *kernel, *context;
};
int cuGraphAddKernelNode_v2(void** out, void* graph, void* const* deps, size_t count, const KernelParams* p) {
  if (!p) return kInvalidValue;
  const char* name = nullptr;
  extern int cuFuncGetName(const char**, void*);
  void* handle = p->function ? p->function : p->kernel;
  if (int error = cuFuncGetName(&name, handle)) return error;
  auto* function = static_cast<Function*>(handle);
  auto launch = std::make_shared<Launch>();
  std::memcpy(launch->grid, p->grid, 12);
  std::memcpy(launch->block, p->block, 12);
  launch->shared = p->shared;
  if (int error = gather(*function, p->params, p->extra, launch->parameters)) return error;
  return add_node(out, graph, deps, count, NodeType::kKernel, [=](Context* c) { execute(*function, *launch, c); }, p, sizeof *p);
}
int cuGraphAddChildGraphNode(void** out, void* graph, void* const* deps, size_t count, void* child) {
  Graph* inner = graphs().find(child);
  if (!inner) return kInvalidHandle;
  std::shared_ptr<GraphExec> exec = flatten(*inner);
  auto run = [exec](Context* context) {
    for (auto& step : exec->runs) step(context);
  };
  return add_node(out, graph, deps, count, NodeType::kGraph, run, nullptr, 0);
}

int cuGraphInstantiateWithFlags(void** out, void* handle, unsigned long long) {
  if (int error = ready()) return error;
  Graph* graph = graphs().find(handle);
  if (!graph) return kInvalidHandle;
  if (!out) return kInvalidValue;
  *out = execs().add(flatten(*graph));
  return kSuccess;
}
int cuGraphExecDestroy(void* handle) { return execs().remove(handle) ? kSuccess : kInvalidHandle; }
int cuGraphUpload(void* exec, void* stream) { return execs().find(exec) && resolve(stream) ? kSuccess : kInvalidHandle; }
int cuGraphLaunch(void* handle, void* stream) {
  GraphExec* exec = execs().find(handle);
  if (!exec) return kInvalidHandle;
  return submit(stream, NodeType::kGraph, [runs = exec->runs](Context* context) {
    for (auto& run : runs)
      if (context->sticky == 0) run(context);
  });
}

}  // extern "C"
#pragma GCC visibility pop
