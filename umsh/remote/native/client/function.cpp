#include "function.h"

#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#include "../wire/launch.h"
#include "session.h"

namespace umsh {

namespace {

struct Known {
  uint64_t owner = 0;
  std::string name;
  std::unique_ptr<Layout> layout;
};

struct Functions {
  std::shared_mutex mutex;
  std::unordered_map<uint64_t, Known> by_handle;
  std::map<std::pair<uint64_t, std::string>, uint64_t> by_name;
  std::map<std::tuple<Op, uint64_t, uint64_t>, uint64_t> derived;
};
Functions& functions() {
  static auto* all = new Functions;
  return *all;
}

uint64_t number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

std::unique_ptr<Layout> read_layout(Reply& reply) {
  auto layout = std::make_unique<Layout>();
  uint64_t count = reply.u64();
  if (count > kParametersMax) return nullptr;
  for (uint64_t i = 0; i < count && reply.ok(); ++i) {
    uint64_t offset = reply.u64(), nbytes = reply.u64();
    if (offset > kParametersMax || nbytes > kParametersMax - offset) return nullptr;
    layout->parameters.push_back({uint32_t(offset), uint32_t(nbytes)});
    if (offset + nbytes > layout->nbytes) layout->nbytes = uint32_t(offset + nbytes);
  }
  return reply.ok() ? std::move(layout) : nullptr;
}

const Layout* ask_layout(uint64_t function, int& error) {
  Reply reply = Call(kOpFunctionInfo).u64(function).reply();
  error = reply.result;
  if (error) return nullptr;
  std::unique_ptr<Layout> layout = read_layout(reply);
  error = layout ? kSuccess : kDeviceUnavailable;
  if (!layout) return nullptr;
  std::unique_lock<std::shared_mutex> lock(functions().mutex);
  Known& known = functions().by_handle[function];
  if (!known.layout) known.layout = std::move(layout);
  return known.layout.get();
}

}  // namespace

int find_function(Op op, Kind kind, Kind owner_kind, void* owner, const char* name, void** out) {
  if (int error = ready()) return error;
  Functions& all = functions();
  std::pair<uint64_t, std::string> key(number(owner), name);
  {
    std::shared_lock<std::shared_mutex> lock(all.mutex);
    auto it = all.by_name.find(key);
    if (it != all.by_name.end() && session()->on.local) return *out = reinterpret_cast<void*>(it->second), kSuccess;
  }
  Call call(op);
  uint64_t function = call.make(kind);
  Reply reply = call.handle(owner_kind, owner).text(name).reply();
  if (reply.result) return reply.result;
  std::unique_lock<std::shared_mutex> lock(all.mutex);
  Known& known = all.by_handle[function];
  known.owner = number(owner);
  known.name = name;
  known.layout = read_layout(reply);
  all.by_name[key] = function;
  *out = reinterpret_cast<void*>(function);
  return kSuccess;
}

int derived(Op op, Kind kind, Kind owner_kind, void* owner, void** out) {
  if (int error = ready()) return error;
  Functions& all = functions();
  std::tuple<Op, uint64_t, uint64_t> key(op, number(owner), thread().current());
  {
    std::shared_lock<std::shared_mutex> lock(all.mutex);
    auto it = all.derived.find(key);
    if (it != all.derived.end()) return *out = reinterpret_cast<void*>(it->second), kSuccess;
  }
  Call call(op);
  uint64_t made = call.make(kind);
  if (int error = call.handle(owner_kind, owner).wait()) return error;
  std::unique_lock<std::shared_mutex> lock(all.mutex);
  all.derived[key] = made;
  *out = reinterpret_cast<void*>(made);
  return kSuccess;
}

const Layout* layout_of(const void* function, int& error) {
  thread_local uint64_t last_function = 0;
  thread_local const Layout* last_layout = nullptr;
  uint64_t handle = number(function);
  error = kSuccess;
  if (handle == last_function && last_layout) return last_layout;
  {
    std::shared_lock<std::shared_mutex> lock(functions().mutex);
    auto it = functions().by_handle.find(handle);
    if (it != functions().by_handle.end() && it->second.layout) {
      last_function = handle;
      return last_layout = it->second.layout.get();
    }
  }
  return ask_layout(handle, error);
}

}  // namespace umsh

using namespace umsh;

namespace {

int parameter_info(void* function, size_t index, size_t* offset, size_t* nbytes) {
  if (int error = local_call()) return error;
  int error;
  const Layout* layout = layout_of(function, error);
  if (!layout) return error;
  if (!offset || index >= layout->parameters.size()) return kInvalidValue;
  *offset = layout->parameters[index].offset;
  if (nbytes) *nbytes = layout->parameters[index].nbytes;
  return kSuccess;
}

int integer(Reply reply, int* out) {
  if (reply.result) return reply.result;
  if (!out) return kInvalidValue;
  return reply.u64(out, sizeof *out) ? int(kSuccess) : int(kDeviceUnavailable);
}

int name_of(const char** out, void* function) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  std::shared_lock<std::shared_mutex> lock(functions().mutex);
  auto it = functions().by_handle.find(number(function));
  if (it == functions().by_handle.end() || it->second.name.empty()) return kInvalidHandle;
  *out = it->second.name.c_str();
  return kSuccess;
}

int owner_of(void** out, void* function) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  std::shared_lock<std::shared_mutex> lock(functions().mutex);
  auto it = functions().by_handle.find(number(function));
  if (it == functions().by_handle.end() || it->second.owner == 0) return kInvalidHandle;
  *out = reinterpret_cast<void*>(it->second.owner);
  return kSuccess;
}

}  // namespace

UMSH_EXPORT int cuKernelGetFunction(void** out, void* kernel) {
  if (!out) return ready() ? ready() : int(kInvalidValue);
  int error = derived(kOp_cuKernelGetFunction, kKindFunction, kKindKernel, kernel, out);
  if (error) return error;
  // Its name and owner are the kernel's.
  std::unique_lock<std::shared_mutex> lock(functions().mutex);
  auto it = functions().by_handle.find(number(kernel));
  std::string name = it == functions().by_handle.end() ? "" : it->second.name;
  functions().by_handle[number(*out)].name = name;
  return kSuccess;
}
UMSH_EXPORT int cuFuncGetParamInfo(void* f, size_t index, size_t* offset, size_t* nbytes) { return parameter_info(f, index, offset, nbytes); }
UMSH_EXPORT int cuKernelGetParamInfo(void* k, size_t index, size_t* offset, size_t* nbytes) { return parameter_info(k, index, offset, nbytes); }
UMSH_EXPORT int cuFuncGetAttribute(int* out, int attribute, void* function) {
  Call call(kOp_cuFuncGetAttribute);
  return integer(call.u64(1).u64(uint64_t(attribute)).handle(kKindFunction, function).reply(), out);
}
UMSH_EXPORT int cuKernelGetAttribute(int* out, int attribute, void* kernel, int device) {
  Call call(kOp_cuKernelGetAttribute);
  return integer(call.u64(1).u64(uint64_t(attribute)).handle(kKindKernel, kernel).u64(uint64_t(device)).reply(), out);
}
UMSH_EXPORT int cuFuncGetName(const char** out, void* function) { return name_of(out, function); }
UMSH_EXPORT int cuKernelGetName(const char** out, void* kernel) { return name_of(out, kernel); }
UMSH_EXPORT int cuKernelGetLibrary(void** out, void* kernel) { return owner_of(out, kernel); }
UMSH_EXPORT int cuFuncGetModule(void** out, void* function) { return owner_of(out, function); }
