// The software device: host memory plays device memory, threads play streams. It exports the driver API's symbols, so
// that a server uses it exactly as it uses a real driver library; tests need no GPU.
//
// Environment: UMSH_SOFTWARE_DEVICES (1), UMSH_SOFTWARE_MEMORY bytes (1 GiB), UMSH_SOFTWARE_SEED (1) and
// UMSH_SOFTWARE_DELAY_US (0): each stream operation first sleeps a seeded time up to this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

namespace software {

// CUresult values, named as in the driver API's documentation.
enum Result : int {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101, kInvalidImage = 200,
  kInvalidContext = 201, kNoBinary = 209, kInvalidPtx = 218, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600,
  kIllegalAddress = 700, kAlreadyRegistered = 712, kNotRegistered = 713, kLaunchFailed = 719, kNotSupported = 801,
  kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureUnmatched = 903, kCaptureUnjoined = 904,
  kCaptureIsolation = 905, kCaptureImplicit = 906, kCapturedEvent = 907, kCaptureWrongThread = 908,
};

uint64_t setting(const char* name, uint64_t otherwise);

// Done exactly once; the order of a stream and the waits between streams are made of these.
class Completion {
 public:
  void set();
  void wait();
  bool done() const { return done_.load(std::memory_order_acquire); }
  uint64_t nanoseconds = 0;  // when it was set, for cuEventElapsedTime

 private:
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};
using Done = std::shared_ptr<Completion>;

struct Context {
  int device = 0;
  std::atomic<int> sticky{0};  // a kernel's fault: every later call of this context fails with it
};

// Objects that calls name by address; a handle is valid while it is in its registry.
template <class T>
class Registry {
 public:
  T* add(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    T* raw = object.get();
    objects_[raw] = std::move(object);
    return raw;
  }
  T* find(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = objects_.find(static_cast<T*>(const_cast<void*>(handle)));
    return it == objects_.end() ? nullptr : it->second.get();
  }
  std::unique_ptr<T> remove(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = objects_.find(static_cast<T*>(const_cast<void*>(handle)));
    if (it == objects_.end()) return nullptr;
    std::unique_ptr<T> object = std::move(it->second);
    objects_.erase(it);
    return object;
  }
  template <class Visit>
  void each(Visit visit) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& entry : objects_) visit(*entry.second);
  }

 private:
  std::mutex mutex_;
  std::map<T*, std::unique_ptr<T>> objects_;
};

struct Work {
  std::function<void()> run;
  std::vector<Done> after;  // completions of other streams that come first
  Done done;
};

struct Graph;

enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

struct Capture {
  uint64_t id = 0;
  CaptureMode mode = kCaptureGlobal;
  std::thread::id thread;
  CaptureStatus status = CaptureStatus::kActive;
  Graph* graph = nullptr;
  void* origin = nullptr;  // the stream that began it
  std::map<void*, std::vector<size_t>> tips;  // last nodes of each joined stream
};
using CapturePtr = std::shared_ptr<Capture>;

class Stream {
 public:
  Stream(Context* context, unsigned flags, int priority);
  ~Stream();
  Done enqueue(std::function<void()> run, std::vector<Done> after = {});
  Done last();
  Context* context;
  unsigned flags;
  int priority;
  uint64_t id;
  CapturePtr capture;  // guarded by capture_mutex()
  bool blocking() const { return (flags & 1u) == 0; }

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  Done last_;
  bool stop_ = false;
  std::thread thread_;
  uint64_t random_;
};

struct Event {
  unsigned flags = 0;
  std::mutex mutex;
  Done done;                   // of the last record
  CapturePtr capture;          // recorded inside a capture: its nodes are the dependency
  std::vector<size_t> nodes;
};

// What one stream operation is, whether it runs at once or becomes a node of a graph.
enum class NodeType : int { kKernel = 0, kMemcpy = 1, kMemset = 2, kHost = 3, kGraph = 4, kEmpty = 5, kWait = 6, kRecord = 7 };

struct Node {
  NodeType type = NodeType::kEmpty;
  std::function<void(Context*)> run;
  std::vector<size_t> after;
  std::vector<char> params;  // as given, for the node's getter
  Graph* graph = nullptr;
  size_t index = 0;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  Node* add(NodeType type, std::function<void(Context*)> run, std::vector<size_t> after);
};

struct GraphExec {
  std::vector<std::function<void(Context*)>> runs;  // in an order that keeps every dependency
};

struct Parameter {
  size_t offset, nbytes;
};

struct Function {
  std::string name, behaviour;
  std::vector<Parameter> parameters;
  size_t nbytes() const { return parameters.empty() ? 0 : parameters.back().offset + parameters.back().nbytes; }
  std::map<int, int> attributes;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, std::pair<uint64_t, size_t>> globals;
  ~Module();
};

struct Launch {
  unsigned grid[3], block[3], shared;
  std::vector<char> parameters;
  unsigned attributes = 0;
};

// Shared state, made on first use and never torn down (streams may outlive main).
Registry<Stream>& streams();
Registry<Event>& events();
Registry<Module>& modules();
Registry<Graph>& graphs();
Registry<GraphExec>& execs();
std::mutex& capture_mutex();

// Context of the calling thread, or null; error of the context or of initialisation, else 0.
Context* current();
int ready();
// Why a call may not run now because of a capture (it then breaks the capture, as the driver's do), else 0.
int unsafe_during_capture();

// The stream a handle names: 0 and 1 the legacy stream, 2 this thread's own; null when unknown.
Stream* resolve(void* handle);
// Runs `run` in the order of `stream`, or adds a node when it captures. `wait` waits for it.
int submit(void* stream, NodeType type, std::function<void(Context*)> run, bool wait = false,
           std::vector<char> params = {});

// Memory: is [address, address + nbytes) inside one allocation (device memory, or host memory the device may use)?
bool device_range(uint64_t address, size_t nbytes);
bool known_host_range(uint64_t address, size_t nbytes);
uint64_t allocate(size_t nbytes, int* error);
bool release(uint64_t address);

// Runs a kernel; faults set the context's sticky error.
void execute(const Function& function, const Launch& launch, Context* context);
int load_image(const void* image, std::unique_ptr<Module>& out);
// Gathers parameters from kernelParams or from a packed buffer; kInvalidValue when they do not fit the layout.
int gather(const Function& function, void** params, void** extra, std::vector<char>& out);

uint64_t now_ns();

}  // namespace software
