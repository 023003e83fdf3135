#include "server/functions.h"

namespace umsh {

namespace {

constexpr int kInvalid = 1, kInvalidHandle = 400, kUnsupported = 801;
constexpr size_t kParameterCountMax = 4096;
constexpr unsigned kProgrammaticEvent = 7, kCompletionEvent = 12, kDeviceUpdatable = 13, kLastKnown = 16;


// Events inside attributes are handles of the client; ids with outputs are none that a client of ours sends.
int translate_attributes(Session& s, char* attributes, size_t nbytes) {
  if (nbytes % kAttributeBytes) return kInvalid;
  for (char* at = attributes; at < attributes + nbytes; at += kAttributeBytes) {
    unsigned id;
    uint64_t event;
    std::memcpy(&id, at, sizeof id);
    if (id == kDeviceUpdatable || id > kLastKnown) return kUnsupported;
    if (id != kProgrammaticEvent && id != kCompletionEvent) continue;
    int error = 0;
    std::memcpy(&event, at + 8, sizeof event);
    void* real = s.lookup(kKindEvent, event, &error);
    if (error) return error;
    std::memcpy(at + 8, &real, sizeof real);
  }
  return 0;
}

int run(Session& s, void* function, const LaunchHead& h, void* stream, char* attributes, std::vector<void*>& parameters) {
  const Driver& d = s.driver;
  auto [gx, gy, gz] = h.grid;
  auto [bx, by, bz] = h.block;
  void** list = parameters.data();
  if (h.kind == LaunchKind::kPlain)
    return invoke(d.cuLaunchKernel, kUnsupported, function, gx, gy, gz, bx, by, bz, h.shared_nbytes, stream, list, static_cast<void**>(nullptr));
  if (h.kind == LaunchKind::kCooperative)
    return invoke(d.cuLaunchCooperativeKernel, kUnsupported, function, gx, gy, gz, bx, by, bz, h.shared_nbytes, stream, list);
  // The record stays as it was sent: the next launch is a difference from it.
  std::vector<char> translated(attributes, attributes + h.attributes_nbytes);
  if (int error = translate_attributes(s, translated.data(), translated.size())) return error;
  LaunchConfig config{{gx, gy, gz}, {bx, by, bz}, h.shared_nbytes, stream, translated.data(), unsigned(translated.size() / kAttributeBytes)};
  return invoke(d.cuLaunchKernelEx, kUnsupported, &config, function, list, static_cast<void**>(nullptr));
}

}  // namespace

const Layout& layout_of(Session& s, void* function, bool kernel) {
  auto known = s.layouts.find(function);
  if (known != s.layouts.end()) return known->second;
  Layout& layout = s.layouts[function];
  auto* get = kernel ? s.driver.cuKernelGetParamInfo : s.driver.cuFuncGetParamInfo;
  uint64_t offset = 0, nbytes = 0;
  while (layout.size() < kParameterCountMax && invoke(get, kUnsupported, function, layout.size(), &offset, &nbytes) == 0)
    layout.emplace_back(offset, nbytes);
  return layout;
}

void put_layout(Session& s, void* function, bool kernel, Writer& out) {
  const Layout& layout = layout_of(s, function, kernel);
  out.u64(layout.size());
  for (auto& parameter : layout) {
    out.u64(parameter.first);
    out.u64(parameter.second);
  }
}

int function_info(Session& s, Reader& in, Writer& out) {
  int error = 0;
  uint64_t handle = in.u64();
  if (!in.finished()) return kWireError;
  bool kernel = handle_kind(handle) == kKindKernel;
  void* function = s.lookup(kernel ? kKindKernel : kKindFunction, handle, &error);
  if (error || !function) return kInvalidHandle;
  put_layout(s, function, kernel, out);
  return 0;
}

int launch(Session& s, Reader& in) {
  uint64_t handle = 0;
  if (!decode_launch(s.launches, in, handle, s.launch)) return kWireError;
  const LaunchHead& head = s.launch.head();
  bool kernel = handle_kind(handle) == kKindKernel;
  int error = 0;
  void* function = s.lookup(kernel ? kKindKernel : kKindFunction, handle, &error);
  void* stream = s.lookup(kKindStream, head.stream, &error);
  if (error) return error;
  if (!function) return kInvalidHandle;
  std::vector<void*> parameters;
  for (auto& parameter : layout_of(s, function, kernel)) {
    if (parameter.first + parameter.second > head.parameters_nbytes) return kInvalid;
    parameters.push_back(s.launch.parameters() + parameter.first);
  }
  return run(s, function, head, stream, s.launch.attributes(), parameters);
}

}  // namespace umsh
