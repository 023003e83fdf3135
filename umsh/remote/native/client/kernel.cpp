// Launching kernels: parameters are packed as the function lays them out, and sent as a difference.
#include <cstring>

#include "call.h"
#include "function.h"
#include "hooks.h"
#include "log.h"
#include "session.h"

using namespace umsh;

namespace {

constexpr unsigned kDeviceUpdatableNode = 13, kLastKnownAttribute = 16;

// Attributes with outputs, or newer than these tables, are refused: none is dropped.
int check_attributes(const LaunchConfig& config) {
  if (config.attribute_count == 0) return kSuccess;
  if (!config.attributes || config.attribute_count * kAttributeBytes > kAttributesMax) return kInvalidValue;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    unsigned id;
    std::memcpy(&id, static_cast<const char*>(config.attributes) + i * kAttributeBytes, sizeof id);
    if (id != kDeviceUpdatableNode && id <= kLastKnownAttribute) continue;
    say_once("launch attribute " + std::to_string(id) + " is not supported remotely; the launch was refused");
    return kNotSupported;
  }
  return kSuccess;
}

// The packed form: a list of keys and values.
int packed_buffer(void** extra, const Layout& layout, const void*& buffer) {
  size_t nbytes = 0;
  constexpr unsigned kPairsMax = 16;
  constexpr uint64_t kEnd = 0, kPointer = 1, kSize = 2;
  for (unsigned i = 0; i < kPairsMax; ++i, extra += 2) {
    auto key = reinterpret_cast<uint64_t>(extra[0]);
    if (key == kEnd) break;
    if (key == kPointer) buffer = extra[1];
    else if (key == kSize) std::memcpy(&nbytes, extra[1], sizeof nbytes);
    else return kInvalidValue;
  }
  // A buffer may carry the padding at the end of the struct that it was built from.
  bool fits = nbytes >= layout.nbytes && nbytes < layout.nbytes + 16;
  return fits && (buffer || layout.nbytes == 0) ? kSuccess : int(kInvalidValue);
}

}  // namespace

namespace umsh {

int pack_parameters(const Layout& layout, void** parameters, void** extra, char* out) {
  if (layout.nbytes == 0) return kSuccess;
  if (parameters) {
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      if (!parameters[i]) return kInvalidValue;
      std::memcpy(out + layout.parameters[i].offset, parameters[i], layout.parameters[i].nbytes);
    }
    return kSuccess;
  }
  const void* buffer = nullptr;
  if (!extra) return kInvalidValue;
  if (int error = packed_buffer(extra, layout, buffer)) return error;
  std::memcpy(out, buffer, layout.nbytes);
  return kSuccess;
}

}  // namespace umsh

namespace {

int send(uint64_t function, const LaunchRecord& record, uint64_t stream) {
  thread_local Writer writer;
  thread_local Pending pending;
  Session& s = *session();
  writer.clear();
  uint64_t sequence;
  Pending* waiter = s.on.async ? nullptr : &pending;
  pending.lost = false;
  {
    // The history on the server sees launches in the order of the wire, so this end's must too.
    std::lock_guard<std::mutex> lock(s.launch_mutex);
    encode_launch(s.launches, function, record, s.on.delta, writer);
    sequence = s.connection->send(kOpLaunch, writer.data(), writer.size(), thread().current(), waiter);
  }
  if (sequence == 0) return kDeviceUnavailable;
  s.progress.worked(stream, sequence);
  if (!waiter) return kSuccess;
  pending.wait();
  return s.result_of(pending);
}

int launch(const LaunchConfig& config, LaunchKind kind, void* function, void** parameters, void** extra) {
  if (int error = ready_in_context()) return error;
  int error;
  const Layout* layout = layout_of(function, error);
  if (!layout) return error;
  bool empty = !config.grid[0] || !config.grid[1] || !config.grid[2] || !config.block[0] || !config.block[1] || !config.block[2];
  if (empty) return kInvalidValue;
  if ((error = check_attributes(config))) return error;
  uint64_t stream = stream_of(config.stream);
  LaunchHead head{{config.grid[0], config.grid[1], config.grid[2]}, {config.block[0], config.block[1], config.block[2]},
                  config.shared_nbytes, kind, stream, uint32_t(config.attribute_count * kAttributeBytes), layout->nbytes};
  thread_local LaunchRecord record;
  record.reset(head);
  if (config.attribute_count) std::memcpy(record.attributes(), config.attributes, config.attribute_count * kAttributeBytes);
  if ((error = pack_parameters(*layout, parameters, extra, record.parameters()))) return error;
  auto* words = reinterpret_cast<const uint64_t*>(record.parameters());
  if ((error = before_device_use(words, padded(layout->nbytes) / 8, stream))) return error;
  return send(reinterpret_cast<uint64_t>(function), record, stream);
}

int unsupported(const char* name) {
  say_unsupported(name);
  return kNotSupported;
}

}  // namespace

UMSH_EXPORT int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void* stream, void** parameters, void** extra) {
  LaunchConfig config{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
  return launch(config, LaunchKind::kPlain, function, parameters, extra);
}
// The launch calls of CUDA 3 and launches on several devices at once.
UMSH_EXPORT int cuLaunch(void*) { return unsupported("cuLaunch"); }
UMSH_EXPORT int cuLaunchGrid(void*, int, int) { return unsupported("cuLaunchGrid"); }
UMSH_EXPORT int cuLaunchGridAsync(void*, int, int, void*) { return unsupported("cuLaunchGridAsync"); }
UMSH_EXPORT int cuLaunchCooperativeKernelMultiDevice(void*, unsigned, unsigned) {
  return unsupported("cuLaunchCooperativeKernelMultiDevice");
}
UMSH_EXPORT int cuLaunchKernel_ptsz(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                    unsigned shared, void* stream, void** parameters, void** extra) {
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, ptsz(stream), parameters, extra);
}

UMSH_EXPORT int cuLaunchKernelEx(const void* given, void* function, void** parameters, void** extra) {
  if (!given) return ready() ? ready() : int(kInvalidValue);
  LaunchConfig config;
  std::memcpy(&config, given, sizeof config);
  return launch(config, LaunchKind::kExtended, function, parameters, extra);
}
UMSH_EXPORT int cuLaunchKernelEx_ptsz(const void* given, void* function, void** parameters, void** extra) {
  if (!given) return ready() ? ready() : int(kInvalidValue);
  LaunchConfig config;
  std::memcpy(&config, given, sizeof config);
  config.stream = ptsz(config.stream);
  return launch(config, LaunchKind::kExtended, function, parameters, extra);
}

UMSH_EXPORT int cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, void* stream, void** parameters) {
  LaunchConfig config{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
  return launch(config, LaunchKind::kCooperative, function, parameters, nullptr);
}
UMSH_EXPORT int cuLaunchCooperativeKernel_ptsz(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                               unsigned bz, unsigned shared, void* stream, void** parameters) {
  return cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, ptsz(stream), parameters);
}
