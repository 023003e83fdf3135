// Virtual memory management by the client: its reservations are parts of the window, its handles numbers of a table.
#include <map>

#include "generated/serve.h"
#include "generated/structs.h"
#include "server/session.h"

namespace umsh {

namespace {

constexpr int kInvalid = 1, kUnsupported = 801;
constexpr size_t kObjectsMax = size_t{1} << 20;

struct Physical {
  uint64_t real, nbytes;
  uint64_t mappings = 0;
  bool released = false;
};
struct Mapping {
  uint64_t nbytes, handle;
};

// One session a process, and its calls run on one thread.
struct Managed {
  std::map<uint64_t, uint64_t> reservations;  // address, bytes
  std::map<uint64_t, Physical> physicals;
  std::map<uint64_t, Mapping> mappings;
  uint64_t next = 1;

  bool reserved(uint64_t address, uint64_t nbytes) const {
    auto it = reservations.upper_bound(address);
    if (it == reservations.begin()) return false;
    --it;
    uint64_t offset = address - it->first;
    return offset <= it->second && nbytes <= it->second - offset;
  }
};
Managed& managed() {
  static auto* all = new Managed;
  return *all;
}

// Memory is given back when its handle and its last mapping are gone.
void drop(Session& s, std::map<uint64_t, Physical>::iterator it) {
  if (!it->second.released || it->second.mappings) return;
  s.memory.uncharge(it->second.nbytes);
  managed().physicals.erase(it);
}

}  // namespace

int serve_cuMemAddressReserve(Session& s, Reader& in, Writer& out) {
  bool wanted = in.u64() != 0;
  uint64_t nbytes = in.u64(), align = in.u64(), hint = in.u64(), flags = in.u64(), address = 0;
  if (!in.finished()) return kWireError;
  if (!wanted || flags || managed().reservations.size() >= kObjectsMax) return kInvalid;
  if (int error = s.memory.reserve(nbytes, align, hint, address)) return error;
  managed().reservations[address] = nbytes;
  out.u64(address);
  return 0;
}

int serve_cuMemAddressFree(Session& s, Reader& in, Writer&) {
  uint64_t address = in.u64(), nbytes = in.u64();
  if (!in.finished()) return kWireError;
  Managed& m = managed();
  auto it = m.reservations.find(address);
  if (it == m.reservations.end() || it->second != nbytes) return kInvalid;
  auto mapped = m.mappings.lower_bound(address);
  if (mapped != m.mappings.end() && mapped->first - address < nbytes) return kInvalid;
  m.reservations.erase(it);
  s.memory.unreserve(address, nbytes);
  return 0;
}

int serve_cuMemCreate(Session& s, Reader& in, Writer& out) {
  struct Properties {  // CUmemAllocationProp
    int type, handle_types, location, device;
    void* metadata;
    unsigned char flags[8];
  } properties{};
  static_assert(sizeof properties == 32, "as the driver lays it out");
  bool wanted = in.u64() != 0;
  uint64_t nbytes = in.u64();
  bool there = in.exact(&properties, sizeof properties);
  uint64_t flags = in.u64();
  if (!in.finished()) return kWireError;
  constexpr int kDevice = 1;
  Managed& m = managed();
  if (!wanted || !there || flags || properties.location != kDevice || m.physicals.size() >= kObjectsMax) return kInvalid;
  properties.handle_types = 0;  // nothing of this session leaves its process
  properties.metadata = nullptr;
  if (int error = s.memory.charge(nbytes)) return error;
  uint64_t real = 0;
  int status = invoke(s.driver.cuMemCreate, kUnsupported, &real, nbytes, &properties, flags);
  if (status) return s.memory.uncharge(nbytes), status;
  m.physicals.emplace(m.next, Physical{real, nbytes});
  out.u64(m.next++);
  return 0;
}

int serve_cuMemRelease(Session& s, Reader& in, Writer&) {
  uint64_t handle = in.u64();
  if (!in.finished()) return kWireError;
  auto it = managed().physicals.find(handle);
  if (it == managed().physicals.end() || it->second.released) return kInvalid;
  int status = invoke(s.driver.cuMemRelease, kUnsupported, it->second.real);
  if (status) return status;
  it->second.released = true;
  drop(s, it);
  return 0;
}

int serve_cuMemMap(Session& s, Reader& in, Writer&) {
  uint64_t address = in.u64(), nbytes = in.u64(), offset = in.u64(), handle = in.u64(), flags = in.u64();
  if (!in.finished()) return kWireError;
  Managed& m = managed();
  auto it = m.physicals.find(handle);
  bool bad = it == m.physicals.end() || it->second.released || nbytes == 0 || !m.reserved(address, nbytes) ||
             m.mappings.size() >= kObjectsMax;
  if (bad) return kInvalid;
  int status = invoke(s.driver.cuMemMap, kUnsupported, address, nbytes, offset, it->second.real, flags);
  if (status) return status;
  m.mappings[address] = {nbytes, handle};
  ++it->second.mappings;
  s.memory.add_foreign(address, nbytes);
  return 0;
}

int serve_cuMemUnmap(Session& s, Reader& in, Writer&) {
  uint64_t address = in.u64(), nbytes = in.u64();
  if (!in.finished()) return kWireError;
  Managed& m = managed();
  if (nbytes == 0 || !m.reserved(address, nbytes)) return kInvalid;
  int status = invoke(s.driver.cuMemUnmap, kUnsupported, address, nbytes);
  if (status) return status;
  s.memory.forget_foreign(address, nbytes);
  for (auto it = m.mappings.lower_bound(address); it != m.mappings.end() && it->first - address < nbytes;) {
    auto physical = m.physicals.find(it->second.handle);
    it = m.mappings.erase(it);
    if (physical == m.physicals.end()) continue;
    --physical->second.mappings;
    drop(s, physical);
  }
  return 0;
}

int serve_cuMemSetAccess(Session& s, Reader& in, Writer&) {
  constexpr uint64_t kDescription = 12;  // CUmemAccessDesc
  uint64_t address = in.u64(), nbytes = in.u64();
  Blob given = in.blob();
  uint64_t count = in.u64();
  if (!in.finished()) return kWireError;
  InArray descriptions(given, count, kDescription);
  if (!descriptions.fits) return kWireError;
  if (!managed().reserved(address, nbytes)) return kInvalid;
  return invoke(s.driver.cuMemSetAccess, kUnsupported, address, nbytes, static_cast<const void*>(descriptions.data()), count);
}

int serve_cuMemRetainAllocationHandle(Session& s, Reader& in, Writer& out) {
  bool wanted = in.u64() != 0;
  uint64_t address = in.u64();
  if (!in.finished()) return kWireError;
  Managed& m = managed();
  auto it = m.mappings.upper_bound(address);
  if (!wanted || it == m.mappings.begin()) return kInvalid;
  --it;
  auto physical = m.physicals.find(it->second.handle);
  if (address - it->first >= it->second.nbytes || physical == m.physicals.end()) return kInvalid;
  uint64_t real = 0;
  int status = invoke(s.driver.cuMemRetainAllocationHandle, kUnsupported, &real, reinterpret_cast<void*>(address));
  if (status) return status;
  if (int error = s.memory.charge(physical->second.nbytes)) return error;  // a handle of its own, released by itself
  m.physicals.emplace(m.next, Physical{real, physical->second.nbytes});
  out.u64(m.next++);
  return 0;
}

int serve_cuMemGetAllocationPropertiesFromHandle(Session& s, Reader& in, Writer& out) {
  bool wanted = in.u64() != 0;
  uint64_t handle = in.u64();
  if (!in.finished()) return kWireError;
  auto it = managed().physicals.find(handle);
  if (!wanted || it == managed().physicals.end() || it->second.released) return kInvalid;
  alignas(8) unsigned char properties[32] = {};
  int status = invoke(s.driver.cuMemGetAllocationPropertiesFromHandle, kUnsupported, static_cast<void*>(properties), it->second.real);
  if (status) return status;
  translate_CUmemAllocationProp_st(s, properties, Way::kOut);
  out.blob(properties, sizeof properties);
  return 0;
}

}  // namespace umsh
