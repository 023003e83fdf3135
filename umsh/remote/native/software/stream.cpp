// Streams as threads, events, and the rule of the legacy stream.
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "device.h"

namespace software {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

uint64_t now_ns() {
  return uint64_t(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

Registry<Stream>& streams() { static auto* all = new Registry<Stream>; return *all; }
Registry<Event>& events() { static auto* all = new Registry<Event>; return *all; }
Registry<Module>& modules() { static auto* all = new Registry<Module>; return *all; }
Registry<Graph>& graphs() { static auto* all = new Registry<Graph>; return *all; }
Registry<GraphExec>& execs() { static auto* all = new Registry<GraphExec>; return *all; }
std::mutex& capture_mutex() { static auto* one = new std::mutex; return *one; }

void Completion::set() {
  std::lock_guard<std::mutex> lock(mutex_);
  nanoseconds = now_ns();
  done_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Completion::wait() {
  if (done()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return done(); });
}

static std::atomic<uint64_t> next_stream{1};

Stream::Stream(Context* owner, unsigned stream_flags, int stream_priority)
    : context(owner), flags(stream_flags), priority(stream_priority), id(next_stream++),
      random_(setting("UMSH_SOFTWARE_SEED", 1) * 0x9E3779B97F4A7C15u + id) {}

Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
}

Done Stream::enqueue(std::function<void()> run, std::vector<Done> after) {
  auto done = std::make_shared<Completion>();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  queue_.push_back({std::move(run), std::move(after), done});
  last_ = done;
  if (queue_.size() == 1) changed_.notify_one();
  return done;
}

Done Stream::last() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

void Stream::work() {
  static const uint64_t delay_us = setting("UMSH_SOFTWARE_DELAY_US", 0);
  for (;;) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
    }
    for (const Done& before : work.after) before->wait();
    if (delay_us) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      usleep(useconds_t((random_ >> 33) % (delay_us + 1)));
    }
    work.run();
    work.done->set();
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.pop_front();
  }
}

// One legacy stream for the process: it comes after, and before, all work of every blocking stream.
static Stream& legacy() {
  static auto* stream = new Stream(nullptr, 0, 0);
  return *stream;
}

Stream* resolve(void* handle) {
  auto value = reinterpret_cast<uintptr_t>(handle);
  if (value <= 1) return &legacy();
  if (value == 2) {
    thread_local Stream* own = streams().add(std::make_unique<Stream>(current(), 0, 0));
    return own;
  }
  return streams().find(handle);
}

static Done start(Stream& stream, std::function<void()> run) {
  static auto* order = new std::mutex;  // legacy and blocking work must agree on who came first
  if (!stream.blocking()) return stream.enqueue(std::move(run));
  std::lock_guard<std::mutex> lock(*order);
  std::vector<Done> after;
  if (&stream == &legacy()) {
    streams().each([&](Stream& other) {
      Done last = other.blocking() ? other.last() : nullptr;
      if (last && !last->done()) after.push_back(last);
    });
  } else if (Done last = legacy().last(); last && !last->done()) {
    after.push_back(last);
  }
  return stream.enqueue(std::move(run), std::move(after));
}

int submit(void* handle, NodeType type, std::function<void(Context*)> run, bool wait, std::vector<char> params) {
  if (int error = ready()) return error;
  Stream* stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  {
    std::lock_guard<std::mutex> lock(capture_mutex());
    if (stream->capture) {
      Capture& capture = *stream->capture;
      if (capture.status != CaptureStatus::kActive) return kCaptureInvalidated;
      if (wait) {
        capture.status = CaptureStatus::kInvalidated;
        return kCaptureUnsupported;
      }
      auto& tips = capture.tips[stream];
      Node* node = capture.graph->add(type, std::move(run), tips);
      node->params = std::move(params);
      tips = {node->index};
      return kSuccess;
    }
    bool captured_blocking = false;
    if (stream == &legacy())
      streams().each([&](Stream& other) {
        captured_blocking |= other.blocking() && other.capture && other.capture->status == CaptureStatus::kActive;
      });
    if (captured_blocking) return kCaptureImplicit;
  }
  Context* context = current();
  Done done = start(*stream, [run = std::move(run), context] {
    if (context->sticky == 0) run(context);
  });
  if (!wait) return kSuccess;
  done->wait();
  return context->sticky;
}

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
extern "C" {

int cuStreamCreateWithPriority(void** out, unsigned flags, int priority) {
  if (int error = ready()) return error;
  if (!out || flags > 1) return kInvalidValue;
  *out = streams().add(std::make_unique<Stream>(current(), flags, priority));
  return kSuccess;
}
int cuStreamCreate(void** out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

int cuStreamDestroy_v2(void* handle) {
  if (int error = ready()) return error;
  std::shared_ptr<Stream> stream = streams().remove(handle);
  if (!stream) return kInvalidHandle;
  std::thread([stream]() mutable { stream.reset(); }).detach();  // its queued work still runs, as on a GPU
  return kSuccess;
}

int cuStreamSynchronize(void* handle) { return submit(handle, NodeType::kEmpty, [](Context*) {}, true); }

int cuStreamQuery(void* handle) {
  if (int error = ready()) return error;
  Stream* stream = resolve(handle);
  if (!stream) return kInvalidHandle;
  if (int error = unsafe_during_capture()) return error;
  Done last = stream->last();
  return last && !last->done() ? kNotReady : kSuccess;
}

int cuStreamGetPriority(void* handle, int* out) {
  Stream* stream = resolve(handle);
  if (!stream || !out) return stream ? kInvalidValue : kInvalidHandle;
  *out = stream->priority;
  return kSuccess;
}
int cuStreamGetFlags(void* handle, unsigned* out) {
  Stream* stream = resolve(handle);
  if (!stream || !out) return stream ? kInvalidValue : kInvalidHandle;
  *out = stream->flags;
  return kSuccess;
}
int cuStreamGetId(void* handle, unsigned long long* out) {
  Stream* stream = resolve(handle);
  if (!stream || !out) return stream ? kInvalidValue : kInvalidHandle;
  *out = stream->id;
  return kSuccess;
}
int cuStreamGetCtx(void* handle, void** out) {
  if (!resolve(handle) || !out) return kInvalidHandle;
  *out = current();
  return kSuccess;
}

int cuEventCreate(void** out, unsigned flags) {
  if (int error = ready()) return error;
  if (!out || flags > 7) return kInvalidValue;
  auto event = std::make_unique<Event>();
  event->flags = flags;
  *out = events().add(std::move(event));
  return kSuccess;
}
int cuEventDestroy_v2(void* handle) { return events().remove(handle) ? kSuccess : kInvalidHandle; }

int cuEventRecordWithFlags(void* handle, void* stream_handle, unsigned) {
  if (int error = ready()) return error;
  Event* event = events().find(handle);
  Stream* stream = resolve(stream_handle);
  if (!event || !stream) return kInvalidHandle;
  {
    std::lock_guard<std::mutex> lock(capture_mutex());
    if (stream->capture) {
      if (stream->capture->status != CaptureStatus::kActive) return kCaptureInvalidated;
      event->capture = stream->capture;
      event->nodes = stream->capture->tips[stream];
      return kSuccess;
    }
  }
  Context* context = current();
  Done done = start(*stream, [] {});
  std::lock_guard<std::mutex> lock(event->mutex);
  event->capture = nullptr;
  event->done = done;
  return context->sticky;
}
int cuEventRecord(void* event, void* stream) { return cuEventRecordWithFlags(event, stream, 0); }

int cuEventQuery(void* handle) {
  if (int error = ready()) return error;
  Event* event = events().find(handle);
  if (!event) return kInvalidHandle;
  std::lock_guard<std::mutex> lock(event->mutex);
  if (event->capture) return kCapturedEvent;
  return event->done && !event->done->done() ? kNotReady : kSuccess;
}

int cuEventSynchronize(void* handle) {
  if (int error = ready()) return error;
  Event* event = events().find(handle);
  if (!event) return kInvalidHandle;
  Done done;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    if (event->capture) return kCapturedEvent;
    done = event->done;
  }
  if (done) done->wait();
  return current()->sticky;
}

int cuEventElapsedTime_v2(float* out, void* first, void* second) {
  Event *a = events().find(first), *b = events().find(second);
  if (!a || !b || !out) return kInvalidHandle;
  if ((a->flags | b->flags) & 2u) return kInvalidHandle;  // timing switched off
  if (!a->done || !b->done) return kInvalidHandle;
  if (!a->done->done() || !b->done->done()) return kNotReady;
  *out = float(double(int64_t(b->done->nanoseconds - a->done->nanoseconds)) * 1e-6);
  return kSuccess;
}
int cuEventElapsedTime(float* out, void* first, void* second) { return cuEventElapsedTime_v2(out, first, second); }

int cuStreamWaitEvent(void* stream_handle, void* event_handle, unsigned) {
  if (int error = ready()) return error;
  Stream* stream = resolve(stream_handle);
  Event* event = events().find(event_handle);
  if (!event || !stream) return kInvalidHandle;
  Done done;
  {
    std::lock_guard<std::mutex> lock(capture_mutex());
    if (event->capture) {  // joins the capture
      if (event->capture->status != CaptureStatus::kActive) return kCaptureInvalidated;
      if (stream->capture && stream->capture != event->capture) return kCaptureIsolation;
      auto& tips = event->capture->tips[stream];
      tips.insert(tips.end(), event->nodes.begin(), event->nodes.end());
      stream->capture = event->capture;
      return kSuccess;
    }
    if (stream->capture) return kCaptureIsolation;
  }
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    done = event->done;
  }
  if (done) stream->enqueue([] {}, {done});
  return kSuccess;
}

int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (!function) return kInvalidValue;
  return submit(stream, NodeType::kHost, [=](Context*) { function(data); });
}

int cuStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned) {
  if (!function) return kInvalidValue;
  return submit(stream, NodeType::kHost, [=](Context* c) { function(stream, c->sticky, data); });
}

int cuCtxSynchronize(void) {
  if (int error = ready()) return error;
  if (int error = unsafe_during_capture()) return error;
  std::vector<Done> all;
  streams().each([&](Stream& stream) {
    if (Done last = stream.last()) all.push_back(last);
  });
  if (Done last = resolve(nullptr)->last()) all.push_back(last);
  for (const Done& done : all) done->wait();
  return current()->sticky;
}

}  // extern "C"
#pragma GCC visibility pop
