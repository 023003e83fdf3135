// Fat binaries, kernels and variables that a program's start registers; a module is loaded at its first use.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cudart/runtime.h"

namespace umsh::cudart {

namespace {

// What the compiler puts around a fat binary. The second version (relocatable device code) names more than one.
struct Wrapper {
  int magic, version;
  const void* data;
  const void* more;
};

struct Managed {
  void** place;
  std::string name;
};

struct Binary {
  const void* image;
  void* library = nullptr;
  std::vector<Managed> managed;
};

struct Entry {
  Binary* binary;
  std::string name;
  size_t nbytes = 0;
  void* kernel = nullptr;
};

struct Configuration {
  Dim3 grid, block;
  size_t shared;
  void* stream;
};

std::recursive_mutex mutex;
// Never destroyed: a program's own destructors may still launch when the library's would have run.
auto& kernels = *new std::unordered_map<const void*, Entry>;
auto& variables = *new std::unordered_map<const void*, Entry>;
thread_local std::vector<Configuration> configurations;

int load(Binary& binary) {
  static Symbol load_data{"cuLibraryLoadData"}, managed{"cuLibraryGetManaged"};
  if (binary.library) return kSuccess;
  if (int error = context()) return error;
  int error = load_data(&binary.library, binary.image, nullptr, nullptr, 0u, nullptr, nullptr, 0u);
  for (auto& [place, name] : binary.managed) {
    size_t nbytes = 0;
    if (!error) error = managed(place, &nbytes, binary.library, name.c_str());
  }
  return error;
}

int find_kernel(Entry& entry, void** kernel) {
  static Symbol get{"cuLibraryGetKernel"};
  int error = entry.kernel ? kSuccess : load(*entry.binary);
  if (!error && !entry.kernel) error = get(&entry.kernel, entry.binary->library, entry.name.c_str());
  *kernel = entry.kernel;
  return error == kNotFound ? kInvalidFunction : error;
}

void forget(std::unordered_map<const void*, Entry>& from, const Binary* binary) {
  for (auto it = from.begin(); it != from.end();) it = it->second.binary == binary ? from.erase(it) : std::next(it);
}

}  // namespace

int kernel_of(const void* symbol, void** kernel) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = kernels.find(symbol);
  if (found != kernels.end()) return find_kernel(found->second, kernel);
  *kernel = const_cast<void*>(symbol);  // a cudaKernel_t is its own symbol
  return symbol ? kSuccess : kInvalidFunction;
}

int function_of(const void* symbol, void** function) {
  static Symbol get{"cuKernelGetFunction"};
  void* kernel = nullptr;
  if (int error = context()) return error;
  if (int error = kernel_of(symbol, &kernel)) return error;
  int error = get(function, kernel);
  if (error && kernel == symbol) {
    *function = kernel;  // neither registered nor a kernel: a CUfunction
    return kSuccess;
  }
  return error;
}

int variable_of(const void* symbol, void** address, size_t* nbytes) {
  static Symbol get{"cuLibraryGetGlobal"};
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = variables.find(symbol);
  if (found == variables.end()) return kInvalidSymbol;
  if (int error = load(*found->second.binary)) return error;
  int error = get(address, nbytes, found->second.binary->library, found->second.name.c_str());
  return error == kNotFound ? kInvalidSymbol : error;
}

}  // namespace umsh::cudart

using namespace umsh::cudart;

UMSH_EXPORT void** __cudaRegisterFatBinary(void* wrapper) {
  auto* outer = static_cast<const Wrapper*>(wrapper);
  const void* image = outer->version == 1 ? outer->data : wrapper;
  return reinterpret_cast<void**>(new Binary{image, nullptr, {}});
}

UMSH_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

UMSH_EXPORT void __cudaUnregisterFatBinary(void** handle) {
  // The driver may be gone already when a process ends: its modules end with it.
  auto* binary = reinterpret_cast<Binary*>(handle);
  std::lock_guard<std::recursive_mutex> lock(mutex);
  forget(kernels, binary);
  forget(variables, binary);
  delete binary;
}

UMSH_EXPORT char __cudaInitModule(void** handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  return done(load(*reinterpret_cast<Binary*>(handle))) == kSuccess;
}

UMSH_EXPORT void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*,
                                        void*, void*, int*) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  kernels[host] = Entry{reinterpret_cast<Binary*>(handle), name};
}

UMSH_EXPORT void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t nbytes, int, int) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  variables[host] = Entry{reinterpret_cast<Binary*>(handle), name, nbytes};
}

UMSH_EXPORT void __cudaRegisterManagedVar(void** handle, void** place, char*, const char* name, int, size_t nbytes,
                                          int, int) {
  auto* binary = reinterpret_cast<Binary*>(handle);
  std::lock_guard<std::recursive_mutex> lock(mutex);
  binary->managed.push_back({place, name});
  variables[place] = Entry{binary, name, nbytes};
}

UMSH_EXPORT void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
UMSH_EXPORT void __cudaRegisterUnifiedTable(void**, void*) {}

UMSH_EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

UMSH_EXPORT int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, void** stream) {
  if (configurations.empty()) return done(kMissingConfiguration);
  auto top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *stream = top.stream;
  return kSuccess;
}

UMSH_EXPORT int __cudaGetKernel(void** kernel, const void* symbol) {
  int error = context();
  return done(error ? error : kernel_of(symbol, kernel));
}

UMSH_EXPORT int cudaGetKernel(void** kernel, const void* symbol) { return __cudaGetKernel(kernel, symbol); }

UMSH_EXPORT int cudaGetFuncBySymbol(void** function, const void* symbol) {
  return done(function_of(symbol, function));
}

UMSH_EXPORT int cudaGetSymbolAddress(void** address, const void* symbol) {
  size_t nbytes = 0;
  return done(variable_of(symbol, address, &nbytes));
}

UMSH_EXPORT int cudaGetSymbolSize(size_t* nbytes, const void* symbol) {
  void* address = nullptr;
  return done(variable_of(symbol, &address, nbytes));
}
