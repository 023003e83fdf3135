// Linking code at run time: the inputs go to the server, which links; the result comes back to this process.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../wire/frame.h"
#include "call.h"
#include "results.h"

using namespace umsh;

namespace {

constexpr unsigned kOptionsMax = 64;

// Options without those that name memory of this process: the log buffers, which stay empty.
struct Options {
  std::vector<int> names;
  std::vector<void*> values;
};

int keep_plain(unsigned count, const int* names, void* const* values, Options& out) {
  constexpr int kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6;
  if (count > kOptionsMax || (count && (!names || !values))) return kInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    bool log = names[i] >= kInfoLog && names[i] <= kErrorLogBytes;
    bool text = names[i] == kInfoLog || names[i] == kErrorLog;
    if (text && values[i]) *static_cast<char*>(values[i]) = 0;
    static_assert(kInfoLogBytes < kErrorLog, "the four stand together");
    if (log) continue;
    out.names.push_back(names[i]);
    out.values.push_back(values[i]);
  }
  return kSuccess;
}

void put(Call& call, const Options& options) {
  size_t n = options.names.size();
  call.blob(n ? options.names.data() : nullptr, n * sizeof(int)).blob(n ? options.values.data() : nullptr, n * sizeof(void*));
}

int add(void* state, int type, const void* data, size_t nbytes, const char* name, const Options& options) {
  if (!data || nbytes == 0) return kInvalidValue;
  if (nbytes > kPayloadMax / 2) return kNotSupported;
  Call call(kOp_cuLinkAddData_v2);
  call.handle(kKindLinkState, state).u64(uint64_t(int64_t(type))).blob(data, nbytes).u64(nbytes).text(name);
  call.u64(options.names.size());
  put(call, options);
  return call.status();
}

}  // namespace

UMSH_EXPORT int cuLinkCreate_v2(unsigned count, int* names, void** values, void** out) {
  Options options;
  if (!out) return kInvalidValue;
  if (int error = keep_plain(count, names, values, options)) return error;
  Call call(kOp_cuLinkCreate_v2);
  call.u64(options.names.size());
  put(call, options);
  uint64_t made = call.make(kKindLinkState);
  int status = call.status();
  if (status == kSuccess) *out = reinterpret_cast<void*>(made);
  return status;
}

UMSH_EXPORT int cuLinkAddData_v2(void* state, int type, void* data, size_t nbytes, const char* name, unsigned count, int* names,
                                 void** values) {
  Options options;
  if (int error = keep_plain(count, names, values, options)) return error;
  return add(state, type, data, nbytes, name, options);
}

UMSH_EXPORT int cuLinkAddFile_v2(void* state, int type, const char* path, unsigned count, int* names, void** values) {
  Options options;
  if (!path) return kInvalidValue;
  if (int error = keep_plain(count, names, values, options)) return error;
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return add(state, type, content.data(), content.size(), path, options);
}

// The result belongs to the link state: it stays until the same state is completed again.
UMSH_EXPORT int cuLinkComplete(void* state, void** out, size_t* nbytes) {
  if (!out) return kInvalidValue;
  Call call(kOp_cuLinkComplete);
  Reply reply = call.handle(kKindLinkState, state).reply();
  if (reply.result != kSuccess) return reply.result;
  Blob made = reply.view();
  if (!reply.ok()) return kDeviceUnavailable;
  static std::mutex mutex;
  static auto* all = new std::map<void*, std::vector<char>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<char>& kept = (*all)[state];
  kept.assign(made.data, made.data + made.nbytes);
  *out = kept.data();
  if (nbytes) *nbytes = kept.size();
  return kSuccess;
}
