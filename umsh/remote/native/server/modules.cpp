// Modules, libraries and what is in them. Content comes by pieces and is taken only when its hash is right.
#include "generated/serve.h"
#include "server/functions.h"
#include "wire/crypto.h"

namespace umsh {

namespace {

constexpr int kInvalid = 1, kInvalidImage = 200, kUnsupported = 801;
constexpr uint64_t kContentMax = uint64_t{1} << 30, kContentsMax = uint64_t{4} << 30;
constexpr uint64_t kOptionsMax = 64, kLogMax = uint64_t{1} << 20;
enum JitOption : int { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };

// Options of the compiler, with log buffers of this process in place of the client's.
struct Options {
  std::vector<int> names;
  std::vector<void*> values;
  std::vector<char> info, error;

  bool read(Reader& in) {
    uint64_t count = in.u64();
    Blob given_names = in.blob(), given_values = in.blob();
    if (!in.ok() || count > kOptionsMax || given_names.nbytes != count * sizeof(int) || given_values.nbytes != count * 8) return count == 0 && in.ok();
    for (uint64_t i = 0; i < count; ++i) {
      int name;
      uint64_t value;
      std::memcpy(&name, given_names.data + i * sizeof name, sizeof name);
      std::memcpy(&value, given_values.data + i * 8, 8);
      if ((name == kInfoLogBytes || name == kErrorLogBytes) && value > kLogMax) value = kLogMax;
      if (name == kInfoLogBytes) info.resize(value + 1);
      if (name == kErrorLogBytes) error.resize(value + 1);
      names.push_back(name);
      values.push_back(reinterpret_cast<void*>(value));
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (names[i] == kInfoLog) values[i] = info.empty() ? nullptr : info.data();
      if (names[i] == kErrorLog) values[i] = error.empty() ? nullptr : error.data();
    }
    return true;
  }
  static void put(const std::vector<char>& log, Writer& out) {
    if (log.empty()) out.blob(nullptr, 0);
    else out.blob(log.data(), strnlen(log.data(), log.size()));
  }
};

const std::string* find_content(Session& s, const Blob& digest) {
  auto it = s.contents.find(std::string(digest.data ? digest.data : "", digest.nbytes));
  return it == s.contents.end() ? nullptr : &it->second;
}

int global(Session& s, int (*get)(uint64_t*, uint64_t*, void*, const char*), Kind kind, Reader& in, Writer& out) {
  int error = 0;
  in.u64();
  in.u64();
  void* owner = s.lookup(kind, in.u64(), &error);
  std::string name;
  in.text(name);
  if (!in.finished()) return kWireError;
  uint64_t address = 0, nbytes = 0;
  if (!error) error = invoke(get, kUnsupported, &address, &nbytes, owner, name.c_str());
  if (error) return error;
  s.memory.add_foreign(address, nbytes);
  out.u64(address);
  out.u64(nbytes);
  return 0;
}

int find(Session& s, int (*get)(void**, void*, const char*), Kind kind, Kind owner_kind, Reader& in, Writer& out) {
  int error = 0;
  uint64_t handle = in.u64();
  void *owner = s.lookup(owner_kind, in.u64(), &error), *found = nullptr;
  std::string name;
  in.text(name, kNameMax);
  if (!in.finished()) return kWireError;
  if (!error && name.empty()) error = kInvalid;
  if (!error) error = invoke(get, kUnsupported, &found, owner, name.c_str());
  if (error) return error;
  s.add(kind, handle, found);
  put_layout(s, found, kind == kKindKernel, out);
  return 0;
}

int derived(Session& s, int (*get)(void**, void*), Kind kind, Kind owner_kind, Reader& in) {
  int error = 0;
  uint64_t handle = in.u64();
  void *owner = s.lookup(owner_kind, in.u64(), &error), *found = nullptr;
  if (!in.finished()) return kWireError;
  if (!error) error = invoke(get, kUnsupported, &found, owner);
  if (!error) s.add(kind, handle, found);
  return error;
}

int count_of(Session& s, int (*get)(unsigned*, void*), Kind kind, Reader& in, Writer& out) {
  int error = 0;
  unsigned count = 0;
  in.u64();
  void* owner = s.lookup(kind, in.u64(), &error);
  if (!in.finished()) return kWireError;
  if (!error) error = invoke(get, kUnsupported, &count, owner);
  if (!error) out.u64(count);
  return error;
}

int unload(Session& s, int (*end)(void*), Kind kind, Reader& in) {
  int error = 0;
  void* real = s.take(kind, in.u64(), &error);
  if (!in.finished()) return kWireError;
  return error ? error : invoke(end, kUnsupported, real);
}

}  // namespace

int module_data(Session& s, Reader& in) {
  uint64_t offset = in.u64(), total = in.u64();
  Blob digest = in.blob(), piece = in.blob();
  if (!in.finished() || digest.nbytes != sizeof(Digest) || !piece.data) return kWireError;
  std::string key(digest.data, digest.nbytes);
  std::string& partial = s.partial[key];
  bool follows = partial.size() == offset && total <= kContentMax && piece.nbytes <= total - offset;
  if (s.contents.count(key) || !follows || s.contents_nbytes + total > kContentsMax) {
    s.partial.erase(key);
    return kInvalid;
  }
  partial.append(piece.data, piece.nbytes);
  if (partial.size() < total) return 0;
  Digest made;
  bool right = sha256(partial.data(), partial.size(), made) && std::memcmp(made.data(), digest.data, made.size()) == 0;
  if (right) {
    s.contents_nbytes += total;
    s.contents[key] = std::move(partial);
    s.contents[key].append(8, '\0');  // text ends, whatever was sent
  }
  s.partial.erase(key);
  return right ? 0 : kInvalidImage;
}

int serve_cuModuleLoadDataEx(Session& s, Reader& in, Writer& out) {
  uint64_t handle = in.u64();
  Blob digest = in.blob();
  Options options;
  if (!options.read(in) || !in.finished()) return kWireError;
  const std::string* content = find_content(s, digest);
  if (!content) return kUnknownContent;
  Relaxed relaxed(s.driver);
  void* module = nullptr;
  int error = options.names.empty()
                  ? invoke(s.driver.cuModuleLoadData, kUnsupported, &module, content->data())
                  : invoke(s.driver.cuModuleLoadDataEx, kUnsupported, &module, content->data(), unsigned(options.names.size()),
                           options.names.data(), options.values.data());
  Options::put(options.info, out);
  Options::put(options.error, out);
  if (!error) s.add(kKindModule, handle, module);
  return error;
}

int serve_cuLibraryLoadData(Session& s, Reader& in, Writer& out) {
  uint64_t handle = in.u64();
  Blob digest = in.blob();
  Options options, library;
  if (!options.read(in) || !library.read(in) || !in.finished()) return kWireError;
  const std::string* content = find_content(s, digest);
  if (!content) return kUnknownContent;
  Relaxed relaxed(s.driver);
  void* made = nullptr;
  int error = invoke(s.driver.cuLibraryLoadData, kUnsupported, &made, content->data(), options.names.data(), options.values.data(),
                     unsigned(options.names.size()), library.names.data(), library.values.data(), unsigned(library.names.size()));
  Options::put(options.info, out);
  Options::put(options.error, out);
  if (!error) s.add(kKindLibrary, handle, made);
  return error;
}

int serve_cuModuleUnload(Session& s, Reader& in, Writer&) { return unload(s, s.driver.cuModuleUnload, kKindModule, in); }
int serve_cuLibraryUnload(Session& s, Reader& in, Writer&) { return unload(s, s.driver.cuLibraryUnload, kKindLibrary, in); }
int serve_cuModuleGetFunction(Session& s, Reader& in, Writer& out) {
  return find(s, s.driver.cuModuleGetFunction, kKindFunction, kKindModule, in, out);
}
int serve_cuLibraryGetKernel(Session& s, Reader& in, Writer& out) {
  return find(s, s.driver.cuLibraryGetKernel, kKindKernel, kKindLibrary, in, out);
}
int serve_cuModuleGetGlobal_v2(Session& s, Reader& in, Writer& out) { return global(s, s.driver.cuModuleGetGlobal_v2, kKindModule, in, out); }
int serve_cuLibraryGetGlobal(Session& s, Reader& in, Writer& out) { return global(s, s.driver.cuLibraryGetGlobal, kKindLibrary, in, out); }
int serve_cuLibraryGetModule(Session& s, Reader& in, Writer&) { return derived(s, s.driver.cuLibraryGetModule, kKindModule, kKindLibrary, in); }
int serve_cuKernelGetFunction(Session& s, Reader& in, Writer&) { return derived(s, s.driver.cuKernelGetFunction, kKindFunction, kKindKernel, in); }
int serve_cuModuleGetFunctionCount(Session& s, Reader& in, Writer& out) { return count_of(s, s.driver.cuModuleGetFunctionCount, kKindModule, in, out); }
int serve_cuLibraryGetKernelCount(Session& s, Reader& in, Writer& out) { return count_of(s, s.driver.cuLibraryGetKernelCount, kKindLibrary, in, out); }

}  // namespace umsh
