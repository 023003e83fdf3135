// Modules, libraries, functions and launches as calls.
#include <cstring>

#include "device.h"

namespace software {

// A library is a module; a kernel is its function. Functions belong to their module and are looked for in all of them.
static Function* find_function(const void* handle) {
  Function* found = nullptr;
  modules().each([&](Module& module) {
    for (auto& entry : module.functions)
      if (entry.second.get() == handle) found = entry.second.get();
  });
  return found;
}

static int load(void** out, const void* image) {
  if (int error = ready()) return error;
  if (!out || !image) return kInvalidValue;
  std::unique_ptr<Module> module;
  if (int error = load_image(image, module)) return error;
  *out = modules().add(std::move(module));
  return kSuccess;
}

static int launch(const Function* function, Launch& launch, void** params, void** extra, void* stream) {
  if (!function) return kInvalidHandle;
  uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > 1024 || !launch.grid[0] || !launch.grid[1] || !launch.grid[2]) return kInvalidValue;
  if (int error = gather(*function, params, extra, launch.parameters)) return error;
  auto shared = std::make_shared<Launch>(std::move(launch));
  return submit(stream, NodeType::kKernel, [=](Context* context) { execute(*function, *shared, context); });
}

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
using Ptr = unsigned long long;
extern "C" {

int cuModuleLoadData(void** out, const void* image) { return load(out, image); }
int cuModuleLoadDataEx(void** out, const void* image, unsigned, int*, void**) { return load(out, image); }
int cuModuleLoadFatBinary(void** out, const void* image) { return load(out, image); }
int cuModuleUnload(void* handle) { return modules().remove(handle) ? kSuccess : kInvalidHandle; }
int cuModuleGetLoadingMode(int* out) {
  *out = 2;
  return kSuccess;
}

int cuModuleGetFunction(void** out, void* handle, const char* name) {
  if (int error = ready()) return error;
  Module* module = modules().find(handle);
  if (!module) return kInvalidHandle;
  if (!out || !name) return kInvalidValue;
  auto it = module->functions.find(name);
  if (it == module->functions.end()) return kNotFound;
  *out = it->second.get();
  return kSuccess;
}
int cuModuleGetFunctionCount(unsigned* out, void* handle) {
  Module* module = modules().find(handle);
  if (!module || !out) return kInvalidHandle;
  *out = unsigned(module->functions.size());
  return kSuccess;
}
int cuModuleGetGlobal_v2(Ptr* address, size_t* nbytes, void* handle, const char* name) {
  Module* module = modules().find(handle);
  if (!module) return kInvalidHandle;
  auto it = name ? module->globals.find(name) : module->globals.end();
  if (it == module->globals.end()) return kNotFound;
  if (address) *address = it->second.first;
  if (nbytes) *nbytes = it->second.second;
  return kSuccess;
}

int cuLibraryLoadData(void** out, const void* image, int*, void**, unsigned, int*, void**, unsigned) { return load(out, image); }
int cuLibraryUnload(void* handle) { return cuModuleUnload(handle); }
int cuLibraryGetKernel(void** out, void* library, const char* name) { return cuModuleGetFunction(out, library, name); }
int cuLibraryGetKernelCount(unsigned* out, void* library) { return cuModuleGetFunctionCount(out, library); }
int cuLibraryGetModule(void** out, void* library) {
  if (!modules().find(library)) return kInvalidHandle;
  *out = library;
  return kSuccess;
}
int cuLibraryGetGlobal(Ptr* at, size_t* nbytes, void* library, const char* name) { return cuModuleGetGlobal_v2(at, nbytes, library, name); }
int cuKernelGetFunction(void** out, void* kernel) {
  if (!find_function(kernel)) return kInvalidHandle;
  *out = kernel;
  return kSuccess;
}

int cuFuncGetParamInfo(void* handle, size_t index, size_t* offset, size_t* nbytes) {
  Function* function = find_function(handle);
  if (!function) return kInvalidHandle;
  if (index >= function->parameters.size()) return kInvalidValue;
  if (offset) *offset = function->parameters[index].offset;
  if (nbytes) *nbytes = function->parameters[index].nbytes;
  return kSuccess;
}
int cuKernelGetParamInfo(void* k, size_t i, size_t* offset, size_t* nbytes) { return cuFuncGetParamInfo(k, i, offset, nbytes); }
int cuFuncGetName(const char** out, void* handle) {
  Function* function = find_function(handle);
  if (!function) return kInvalidHandle;
  *out = function->name.c_str();
  return kSuccess;
}
int cuKernelGetName(const char** out, void* kernel) { return cuFuncGetName(out, kernel); }
int cuFuncGetModule(void** out, void* handle) {
  *out = nullptr;
  modules().each([&](Module& module) {
    for (auto& entry : module.functions)
      if (entry.second.get() == handle) *out = &module;
  });
  return *out ? kSuccess : kInvalidHandle;
}
int cuFuncGetAttribute(int* out, int attribute, void* handle) {
  Function* function = find_function(handle);
  if (!function) return kInvalidHandle;
  if (!out || attribute < 0 || attribute > 20) return kInvalidValue;
  auto it = function->attributes.find(attribute);
  static const std::map<int, int> values = {{0, 1024}, {4, 16}, {5, 90}, {6, 90}};
  *out = it != function->attributes.end() ? it->second : values.count(attribute) ? values.at(attribute) : 0;
  return kSuccess;
}
int cuFuncSetAttribute(void* handle, int attribute, int value) {
  Function* function = find_function(handle);
  if (!function) return kInvalidHandle;
  if (attribute < 8 || attribute > 20) return kInvalidValue;
  function->attributes[attribute] = value;
  return kSuccess;
}
int cuKernelGetAttribute(int* out, int attribute, void* kernel, int) { return cuFuncGetAttribute(out, attribute, kernel); }
int cuKernelSetAttribute(int attribute, int value, void* kernel, int) { return cuFuncSetAttribute(kernel, attribute, value); }
int cuFuncSetCacheConfig(void* handle, int) { return find_function(handle) ? kSuccess : kInvalidHandle; }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, void* handle, int block, size_t, unsigned) {
  if (!find_function(handle)) return kInvalidHandle;
  if (!out || block <= 0) return kInvalidValue;
  *out = block > 1024 ? 0 : 2048 / block;
  return kSuccess;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* f, int block, size_t shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, f, block, shared, 0);
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** params, void** extra) {
  if (int error = ready()) return error;
  Launch config{{gx, gy, gz}, {bx, by, bz}, shared, {}, 0};
  return launch(find_function(function), config, params, extra, stream);
}
int cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void* stream, void** params) {
  return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr);
}

struct LaunchConfig {  // as cuLaunchKernelEx takes it
  unsigned grid[3], block[3], shared;
  void* stream;
  const void* attributes;
  unsigned attribute_count;
};
int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** params, void** extra) {
  if (int error = ready()) return error;
  if (!config || (config->attribute_count && !config->attributes)) return kInvalidValue;
  Launch made{{}, {}, config->shared, {}, config->attribute_count};
  std::memcpy(made.grid, config->grid, 12);
  std::memcpy(made.block, config->block, 12);
  return launch(find_function(function), made, params, extra, config->stream);
}

}  // extern "C"
#pragma GCC visibility pop
