// Modules and libraries: their content travels once, named by its hash; what is in them is asked for by name.
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "../wire/crypto.h"
#include "call.h"
#include "function.h"
#include "image.h"
#include "log.h"
#include "session.h"

using namespace umsh;

namespace {

// Options of the JIT compiler that name memory of this process.
enum JitOption : int { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };
constexpr unsigned kOptionsMax = 64;

struct Options {
  unsigned count = 0;
  const int* names = nullptr;
  void* const* values = nullptr;
};

void put(Call& call, const Options& options) {
  uint64_t values[kOptionsMax];
  for (unsigned i = 0; i < options.count; ++i) {
    bool log = options.names[i] == kInfoLog || options.names[i] == kErrorLog;
    values[i] = log || !options.values ? 0 : reinterpret_cast<uint64_t>(options.values[i]);
  }
  call.u64(options.count).blob(options.names, options.names ? options.count * sizeof(int) : 0);
  call.blob(options.names ? values : nullptr, options.count * sizeof(uint64_t));
}

// A log of the compiler, cut to the buffer that the program gave.
void take_log(const Blob& log, const Options& options, JitOption buffer, JitOption capacity) {
  char* to = nullptr;
  size_t room = 0, size_at = kOptionsMax;
  for (unsigned i = 0; i < options.count; ++i) {
    if (options.names[i] == buffer) to = static_cast<char*>(options.values[i]);
    if (options.names[i] == capacity) room = size_t(reinterpret_cast<uint64_t>(options.values[i])), size_at = i;
  }
  if (!to || room == 0 || size_at == kOptionsMax) return;
  size_t n = log.nbytes < room - 1 ? log.nbytes : room - 1;
  if (log.data) std::memcpy(to, log.data, n);
  to[log.data ? n : 0] = 0;
}

bool send_content(const Image& image, const Digest& digest) {
  for (uint64_t at = 0; at < image.nbytes; at += kPieceBytes) {
    uint64_t n = image.nbytes - at < kPieceBytes ? image.nbytes - at : uint64_t(kPieceBytes);
    Writer head;
    head.u64(at);
    head.u64(image.nbytes);
    head.blob(digest.data(), digest.size());
    head.u64(n);
    Connection& connection = *session()->connection;
    if (!connection.send_with(kOpModuleData, head.data(), head.size(), image.data + at, n, kSameContext)) return false;
  }
  return true;
}

// Code is left out only when it is of no use to any device there.
void trim(Image& image) {
  constexpr int kMajor = 75, kMinor = 76;  // attributes of the compute capability
  const auto& devices = session()->snapshot.devices;
  const auto& first = devices.front().attributes;
  for (const DeviceSnapshot& device : devices)
    if (device.attributes[kMajor] != first[kMajor] || device.attributes[kMinor] != first[kMinor]) return;
  trim_image(image, first[kMajor], first[kMinor]);
}

int load_image(Op op, Kind kind, const void* data, const Options& options, const Options* library, void** out) {
  if (int error = op == kOp_cuLibraryLoadData ? ready() : ready_in_context()) return error;
  bool bad = !out || options.count > kOptionsMax || (options.count && (!options.names || !options.values));
  if (bad || (library && library->count > kOptionsMax)) return kInvalidValue;
  Image image;
  if (int error = measure_image(data, image)) return error;
  trim(image);
  Digest digest;
  if (!sha256(image.data, image.nbytes, digest)) {
    say_once(crypto_missing());
    return kNotSupported;
  }
  for (bool sent = false;; sent = true) {
    Call call(op);
    uint64_t handle = call.make(kind);
    call.blob(digest.data(), digest.size());
    put(call, options);
    if (library) put(call, *library);
    Reply reply = call.reply();
    if (reply.result == kUnknownContent && !sent) {
      if (!send_content(image, digest)) return kDeviceUnavailable;
      continue;
    }
    if (reply.result == kUnknownContent) return kInvalidImage;
    take_log(reply.view(), options, kInfoLog, kInfoLogBytes);
    take_log(reply.view(), options, kErrorLog, kErrorLogBytes);
    if (reply.result == kSuccess) *out = reinterpret_cast<void*>(handle);
    return reply.result;
  }
}

int read_file(const char* path, std::string& out) {
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return kFileNotFound;
  struct stat facts;
  bool ok = fstat(fd, &facts) == 0 && facts.st_size > 0 && uint64_t(facts.st_size) < kImageMax;
  if (ok) out.resize(size_t(facts.st_size) + 1);  // PTX ends with a NUL
  for (size_t at = 0; ok && at < size_t(facts.st_size);) {
    ssize_t n = read(fd, &out[at], size_t(facts.st_size) - at);
    ok = n > 0;
    at += ok ? size_t(n) : 0;
  }
  close(fd);
  return ok ? kSuccess : int(kInvalidImage);
}

int global(Op op, Kind kind, uint64_t* address, size_t* nbytes, void* owner, const char* name) {
  if (int error = ready()) return error;
  if (!name) return kInvalidValue;
  Reply reply = Call(op).u64(1).u64(1).handle(kind, owner).text(name).reply();
  if (reply.result) return reply.result;
  Block block;
  block.address = block.device = reply.u64();
  block.nbytes = reply.u64();
  block.context = thread().current();
  if (!reply.ok()) return kDeviceUnavailable;
  Block known;
  if (!session()->memory.find(block.address, &known)) session()->memory.add(block);
  if (address) *address = block.address;
  if (nbytes) *nbytes = block.nbytes;
  return kSuccess;
}

int count(Op op, Kind kind, unsigned* out, void* owner) {
  if (!out) return ready() ? ready() : int(kInvalidValue);
  Call call(op);
  Reply reply = call.u64(1).handle(kind, owner).reply();
  if (reply.result) return reply.result;
  return reply.u64(out, sizeof *out) ? int(kSuccess) : int(kDeviceUnavailable);
}

}  // namespace

UMSH_EXPORT int cuModuleLoadData(void** out, const void* image) {
  return load_image(kOp_cuModuleLoadDataEx, kKindModule, image, {}, nullptr, out);
}
UMSH_EXPORT int cuModuleLoadDataEx(void** out, const void* image, unsigned count, int* names, void** values) {
  return load_image(kOp_cuModuleLoadDataEx, kKindModule, image, {count, names, values}, nullptr, out);
}
UMSH_EXPORT int cuModuleLoadFatBinary(void** out, const void* image) { return cuModuleLoadData(out, image); }
UMSH_EXPORT int cuModuleLoad(void** out, const char* path) {
  if (int error = ready_in_context()) return error;
  std::string content;
  if (int error = read_file(path, content)) return error;
  return cuModuleLoadData(out, content.data());
}

UMSH_EXPORT int cuModuleUnload(void* module) { return Call(kOp_cuModuleUnload).handle(kKindModule, module).status(); }

UMSH_EXPORT int cuModuleGetLoadingMode(int* out) {
  if (int error = local_call()) return error;
  if (!out) return kInvalidValue;
  *out = 2;  // lazy: nothing travels before it is used
  return kSuccess;
}

UMSH_EXPORT int cuModuleGetFunction(void** out, void* module, const char* name) {
  if (!out || !name) return ready() ? ready() : int(kInvalidValue);
  return find_function(kOp_cuModuleGetFunction, kKindFunction, kKindModule, module, name, out);
}

UMSH_EXPORT int cuModuleGetGlobal_v2(uint64_t* address, size_t* nbytes, void* module, const char* name) {
  return global(kOp_cuModuleGetGlobal_v2, kKindModule, address, nbytes, module, name);
}

UMSH_EXPORT int cuModuleGetFunctionCount(unsigned* out, void* module) {
  return count(kOp_cuModuleGetFunctionCount, kKindModule, out, module);
}
UMSH_EXPORT int cuLibraryGetKernelCount(unsigned* out, void* library) {
  return count(kOp_cuLibraryGetKernelCount, kKindLibrary, out, library);
}

UMSH_EXPORT int cuLibraryLoadData(void** out, const void* code, int* jit, void** jit_values, unsigned jit_count, int* options,
                                  void** values, unsigned count) {
  Options library{count, options, values};
  return load_image(kOp_cuLibraryLoadData, kKindLibrary, code, {jit_count, jit, jit_values}, &library, out);
}
UMSH_EXPORT int cuLibraryLoadFromFile(void** out, const char* path, int* jit, void** jit_values, unsigned jit_count, int* options,
                                      void** values, unsigned count) {
  if (int error = ready()) return error;
  std::string content;
  if (int error = read_file(path, content)) return error;
  return cuLibraryLoadData(out, content.data(), jit, jit_values, jit_count, options, values, count);
}
UMSH_EXPORT int cuLibraryUnload(void* library) { return Call(kOp_cuLibraryUnload).handle(kKindLibrary, library).status(); }

UMSH_EXPORT int cuLibraryGetKernel(void** out, void* library, const char* name) {
  if (!out || !name) return ready() ? ready() : int(kInvalidValue);
  return find_function(kOp_cuLibraryGetKernel, kKindKernel, kKindLibrary, library, name, out);
}
UMSH_EXPORT int cuLibraryGetModule(void** out, void* library) {
  if (!out) return ready() ? ready() : int(kInvalidValue);
  return derived(kOp_cuLibraryGetModule, kKindModule, kKindLibrary, library, out);
}
UMSH_EXPORT int cuLibraryGetGlobal(uint64_t* address, size_t* nbytes, void* library, const char* name) {
  return global(kOp_cuLibraryGetGlobal, kKindLibrary, address, nbytes, library, name);
}
UMSH_EXPORT int cuLibraryGetManaged(uint64_t*, size_t*, void*, const char*) {
  say_unsupported("cuLibraryGetManaged");
  return kNotSupported;
}
