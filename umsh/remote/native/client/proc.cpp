// Finding driver functions by name and version, from the map that is generated of the public headers.
#include <cstring>
#include <dlfcn.h>

#include "call.h"
#include "log.h"
#include "results.h"

using namespace umsh;

namespace {

struct SymbolRow {
  const char* name;    // as asked for
  int version;         // the first CUDA version with this symbol
  int flags;           // 1: legacy default stream, 2: per-thread default stream
  const char* symbol;  // as exported
};
constexpr SymbolRow kSymbols[] = {
#include "../generated/symbols.inc"
    {"", 0, 0, ""},
};
enum Status : int { kFound = 0, kUnknown = 1, kVersionTooOld = 2 };
constexpr unsigned kLegacyStream = 1, kPerThreadStream = 2;

// This library itself: another one of the process may export the same names.
void* own_symbol(const char* symbol) {
  static void* const self = [] {
    Dl_info facts{};
    dladdr(reinterpret_cast<const void*>(&own_symbol), &facts);
    return facts.dli_fname ? dlopen(facts.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  }();
  return self ? dlsym(self, symbol) : nullptr;
}

void* find(const char* name, int version, int flags, Status& status) {
  const SymbolRow* best = nullptr;
  status = kUnknown;
  for (const SymbolRow& row : kSymbols) {
    if (std::strcmp(row.name, name) != 0 || row.flags != flags) continue;
    if (status == kUnknown) status = kVersionTooOld;
    if (row.version <= version && (!best || row.version > best->version)) best = &row;
  }
  void* address = best ? own_symbol(best->symbol) : nullptr;
  if (address) status = kFound;
  return address;
}

int lookup(const char* name, void** out, int version, uint64_t flags, int* status) {
  if (!name || !out || flags > kPerThreadStream) return kInvalidValue;
  Status found = kUnknown;
  bool per_thread = (flags & kPerThreadStream) != 0;
  *out = find(name, version, per_thread ? int(kPerThreadStream) : int(kLegacyStream), found);
  if (status) *status = found;
  return *out ? kSuccess : int(kNotFound);
}

// The tables behind cuGetExportTable are private and not answered. One is an optional cache of compiled code that NVRTC
// asks for; an entry that says "not supported" only loses that cache.
int no_cache_entry() { return kNotSupported; }
constexpr unsigned char kCompileCache[4] = {0xDA, 0x91, 0x51, 0xD3};
constexpr size_t kCompileCacheEntries = 7;

}  // namespace

UMSH_EXPORT int cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
  return lookup(name, out, version, flags, nullptr);
}

UMSH_EXPORT int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status) {
  return lookup(name, out, version, flags, status);
}

UMSH_EXPORT int cuGetExportTable(const void** out, const unsigned char* id) {
  using Entry = int (*)();
  struct Table {
    size_t nbytes;
    Entry entries[kCompileCacheEntries];
  };
  static const Table cache = {sizeof(Table), {no_cache_entry, no_cache_entry, no_cache_entry, no_cache_entry, no_cache_entry,
                                              no_cache_entry, no_cache_entry}};
  if (!out || !id) return kInvalidValue;
  *out = std::memcmp(id, kCompileCache, sizeof kCompileCache) == 0 ? &cache : nullptr;
  if (*out) return kSuccess;
  say_once("a library asked for a private table of the driver, which no remote client has: a program that links the CUDA "
           "runtime statically must be built with -cudart shared");
  return kNotFound;
}
