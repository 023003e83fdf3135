// Device memory out of host memory: allocations, address reservations, host memory, copies and fills.
#include <sys/mman.h>

#include <cstring>

#include "device.h"

namespace software {

namespace {

enum class Space { kDevice, kHost, kManaged };
struct Block {
  size_t nbytes;
  Space space;
  bool owned;  // mapped here, to be unmapped
};
struct Physical {
  size_t nbytes;
};

struct Memory {
  std::mutex mutex;
  std::map<uint64_t, Block> blocks;          // what may be read and written
  std::map<uint64_t, size_t> reservations;
  size_t used = 0;
};
Memory& memory() { static auto* one = new Memory; return *one; }
Registry<Physical>& physicals() { static auto* all = new Registry<Physical>; return *all; }
size_t capacity() {
  static const size_t bytes = setting("UMSH_SOFTWARE_MEMORY", uint64_t{1} << 30);
  return bytes;
}

constexpr size_t kPage = 4096;
constexpr size_t kGranule = size_t{2} << 20;
size_t pages(size_t nbytes) { return (nbytes + kPage - 1) & ~(kPage - 1); }

const Block* containing(uint64_t address, size_t nbytes) {
  auto& blocks = memory().blocks;
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin()) return nullptr;
  --it;
  uint64_t end = it->first + it->second.nbytes;
  if (address < it->first || address > end) return nullptr;
  while (nbytes > end - address) {  // neighbouring mappings of one reservation are one range
    auto next = blocks.find(end);
    if (next == blocks.end() || next->second.space != it->second.space) return nullptr;
    end += next->second.nbytes;
  }
  return &it->second;
}

int map_new(size_t nbytes, Space space, uint64_t* out) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  bool counts = space != Space::kHost;
  if (counts && nbytes > capacity() - memory().used) return kOutOfMemory;
  void* at = mmap(nullptr, pages(nbytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return kOutOfMemory;
  if (counts) memory().used += pages(nbytes);
  *out = reinterpret_cast<uint64_t>(at);
  memory().blocks[*out] = {nbytes, space, true};
  return kSuccess;
}

int unmap(uint64_t address, bool host) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().blocks.find(address);
  if (it == memory().blocks.end() || !it->second.owned || (it->second.space == Space::kHost) != host)
    return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), pages(it->second.nbytes));
  if (!host) memory().used -= pages(it->second.nbytes);
  memory().blocks.erase(it);
  return kSuccess;
}

}  // namespace

bool device_range(uint64_t address, size_t nbytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  return containing(address, nbytes) != nullptr;
}

bool known_host_range(uint64_t address, size_t nbytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  const Block* block = containing(address, nbytes);
  return block && block->space != Space::kDevice;
}

uint64_t allocate(size_t nbytes, int* error) {
  uint64_t at = 0;
  *error = map_new(nbytes, Space::kDevice, &at);
  return at;
}
bool release(uint64_t address) { return unmap(address, false) == kSuccess; }

static int copy(uint64_t dst, uint64_t src, size_t nbytes, bool dst_device, bool src_device, void* stream, bool wait) {
  if (nbytes == 0) return ready();
  if ((dst_device && !device_range(dst, nbytes)) || (src_device && !device_range(src, nbytes))) return kInvalidValue;
  if (!dst || !src) return kInvalidValue;
  return submit(stream, NodeType::kMemcpy, [=](Context*) {
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<void*>(src), nbytes);
  }, wait);
}

template <class T>
static int fill(uint64_t dst, T value, size_t count, void* stream) {
  if (count == 0) return ready();
  if (dst % sizeof(T) || !device_range(dst, count * sizeof(T))) return kInvalidValue;
  return submit(stream, NodeType::kMemset, [=](Context*) {
    T* at = reinterpret_cast<T*>(dst);
    for (size_t i = 0; i < count; ++i) at[i] = value;
  });
}

template <class T>
static int fill_2d(uint64_t dst, size_t pitch, T value, size_t width, size_t height, void* stream) {
  if (width == 0 || height == 0) return ready();
  if (pitch < width * sizeof(T) || !device_range(dst, pitch * (height - 1) + width * sizeof(T))) return kInvalidValue;
  return submit(stream, NodeType::kMemset, [=](Context*) {
    for (size_t y = 0; y < height; ++y) {
      T* row = reinterpret_cast<T*>(dst + y * pitch);
      for (size_t x = 0; x < width; ++x) row[x] = value;
    }
  });
}

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
using Ptr = unsigned long long;
extern "C" {

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  if (int error = ready()) return error;
  std::lock_guard<std::mutex> lock(memory().mutex);
  if (free_bytes) *free_bytes = capacity() - memory().used;
  if (total) *total = capacity();
  return kSuccess;
}

static int alloc(Ptr* out, size_t nbytes, Space space) {
  if (int error = ready()) return error;
  if (int error = unsafe_during_capture()) return error;
  if (!out || nbytes == 0) return kInvalidValue;
  uint64_t at = 0;
  int error = map_new(nbytes, space, &at);
  if (!error) *out = at;
  return error;
}
int cuMemAlloc_v2(Ptr* out, size_t nbytes) { return alloc(out, nbytes, Space::kDevice); }
int cuMemAllocManaged(Ptr* out, size_t nbytes, unsigned) { return alloc(out, nbytes, Space::kManaged); }
int cuMemAllocPitch_v2(Ptr* out, size_t* pitch, size_t width, size_t height, unsigned) {
  if (!pitch) return kInvalidValue;
  *pitch = (width + 511) & ~size_t{511};
  return alloc(out, *pitch * height, Space::kDevice);
}
int cuMemFree_v2(Ptr at) {
  if (int error = ready()) return error;
  if (at == 0) return kSuccess;
  if (int error = unsafe_during_capture()) return error;
  extern int cuCtxSynchronize(void);
  if (int error = cuCtxSynchronize()) return error;
  return unmap(at, false);
}
int cuMemAllocAsync(Ptr* out, size_t nbytes, void* stream) { return resolve(stream) ? alloc(out, nbytes, Space::kDevice) : kInvalidHandle; }
int cuMemFreeAsync(Ptr at, void* stream) {
  if (!device_range(at, 1)) return kInvalidValue;
  return submit(stream, NodeType::kEmpty, [=](Context*) { unmap(at, false); });
}

int cuMemHostAlloc(void** out, size_t nbytes, unsigned) {
  Ptr at = 0;
  int error = out ? alloc(&at, nbytes, Space::kHost) : kInvalidValue;
  if (!error) *out = reinterpret_cast<void*>(at);
  return error;
}
int cuMemAllocHost_v2(void** out, size_t nbytes) { return cuMemHostAlloc(out, nbytes, 0); }
int cuMemFreeHost(void* at) { return unmap(reinterpret_cast<uint64_t>(at), true); }
int cuMemHostRegister_v2(void* at, size_t nbytes, unsigned) {
  if (int error = ready()) return error;
  auto address = reinterpret_cast<uint64_t>(at);
  if (!at || nbytes == 0) return kInvalidValue;
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto next = memory().blocks.lower_bound(address);
  if (containing(address, 1) || (next != memory().blocks.end() && next->first < address + nbytes)) return kAlreadyRegistered;
  memory().blocks[address] = {nbytes, Space::kHost, false};
  return kSuccess;
}
int cuMemHostUnregister(void* at) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().blocks.find(reinterpret_cast<uint64_t>(at));
  if (it == memory().blocks.end() || it->second.owned) return kNotRegistered;
  memory().blocks.erase(it);
  return kSuccess;
}
int cuMemHostGetDevicePointer_v2(Ptr* out, void* at, unsigned) {
  auto address = reinterpret_cast<uint64_t>(at);
  if (!out || !known_host_range(address, 1)) return kInvalidValue;
  *out = address;
  return kSuccess;
}

int cuMemGetAddressRange_v2(Ptr* base, size_t* nbytes, Ptr at) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().blocks.upper_bound(at);
  if (it == memory().blocks.begin()) return kNotFound;
  --it;
  if (at >= it->first + it->second.nbytes) return kNotFound;
  if (base) *base = it->first;
  if (nbytes) *nbytes = it->second.nbytes;
  return kSuccess;
}

// Virtual memory management: a reservation is an unreadable mapping, a mapping makes part of it readable.
int cuMemGetAllocationGranularity(size_t* out, const void*, int) {
  if (!out) return kInvalidValue;
  *out = kGranule;
  return kSuccess;
}
int cuMemAddressReserve(Ptr* out, size_t nbytes, size_t, Ptr hint, unsigned long long) {
  if (!out || nbytes == 0 || nbytes % kGranule) return kInvalidValue;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (hint ? MAP_FIXED_NOREPLACE : 0);
  void* at = mmap(reinterpret_cast<void*>(hint), nbytes, PROT_NONE, flags, -1, 0);
  if (at == MAP_FAILED) return kOutOfMemory;
  std::lock_guard<std::mutex> lock(memory().mutex);
  *out = reinterpret_cast<uint64_t>(at);
  memory().reservations[*out] = nbytes;
  return kSuccess;
}
int cuMemAddressFree(Ptr at, size_t nbytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().reservations.find(at);
  if (it == memory().reservations.end() || it->second != nbytes) return kInvalidValue;
  munmap(reinterpret_cast<void*>(at), nbytes);
  memory().reservations.erase(it);
  return kSuccess;
}
int cuMemCreate(unsigned long long* out, size_t nbytes, const void*, unsigned long long) {
  if (int error = ready()) return error;
  if (!out || nbytes == 0 || nbytes % kGranule) return kInvalidValue;
  {
    std::lock_guard<std::mutex> lock(memory().mutex);
    if (nbytes > capacity() - memory().used) return kOutOfMemory;
    memory().used += nbytes;
  }
  *out = reinterpret_cast<uint64_t>(physicals().add(std::make_unique<Physical>(Physical{nbytes})));
  return kSuccess;
}
int cuMemRelease(unsigned long long handle) {
  auto physical = physicals().remove(reinterpret_cast<void*>(handle));
  if (!physical) return kInvalidValue;
  std::lock_guard<std::mutex> lock(memory().mutex);
  memory().used -= physical->nbytes;
  return kSuccess;
}
int cuMemMap(Ptr at, size_t nbytes, size_t offset, unsigned long long handle, unsigned long long) {
  Physical* physical = physicals().find(reinterpret_cast<void*>(handle));
  if (!physical || offset || nbytes != physical->nbytes || at % kGranule) return kInvalidValue;
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().reservations.upper_bound(at);
  if (it == memory().reservations.begin() || at + nbytes > std::prev(it)->first + std::prev(it)->second) return kInvalidValue;
  if (containing(at, 1) && at < std::prev(memory().blocks.upper_bound(at))->first + std::prev(memory().blocks.upper_bound(at))->second.nbytes)
    return kInvalidValue;
  memory().blocks[at] = {nbytes, Space::kDevice, false};
  return kSuccess;
}
int cuMemSetAccess(Ptr at, size_t nbytes, const void*, size_t) {
  return mprotect(reinterpret_cast<void*>(at), nbytes, PROT_READ | PROT_WRITE) ? kInvalidValue : kSuccess;
}
int cuMemUnmap(Ptr at, size_t nbytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  for (uint64_t end = at + nbytes; at < end;) {
    auto it = memory().blocks.find(at);
    if (it == memory().blocks.end() || it->second.owned) return kInvalidValue;
    size_t length = it->second.nbytes;
    madvise(reinterpret_cast<void*>(at), length, MADV_DONTNEED);
    mprotect(reinterpret_cast<void*>(at), length, PROT_NONE);
    memory().blocks.erase(it);
    at += length;
  }
  return kSuccess;
}

int cuMemcpyHtoD_v2(Ptr dst, const void* src, size_t n) { return copy(dst, reinterpret_cast<uint64_t>(src), n, true, false, nullptr, true); }
int cuMemcpyDtoH_v2(void* dst, Ptr src, size_t n) { return copy(reinterpret_cast<uint64_t>(dst), src, n, false, true, nullptr, true); }
int cuMemcpyDtoD_v2(Ptr dst, Ptr src, size_t n) { return copy(dst, src, n, true, true, nullptr, false); }
int cuMemcpy(Ptr dst, Ptr src, size_t n) { return copy(dst, src, n, false, false, nullptr, true); }
int cuMemcpyAsync(Ptr dst, Ptr src, size_t n, void* s) { return copy(dst, src, n, false, false, s, false); }
int cuMemcpyDtoDAsync_v2(Ptr dst, Ptr src, size_t n, void* s) { return copy(dst, src, n, true, true, s, false); }
int cuMemcpyHtoDAsync_v2(Ptr dst, const void* src, size_t n, void* s) {
  auto from = reinterpret_cast<uint64_t>(src);
  if (known_host_range(from, n)) return copy(dst, from, n, true, false, s, false);
  auto data = std::make_shared<std::vector<char>>(static_cast<const char*>(src), static_cast<const char*>(src) + n);
  if (n == 0) return ready();
  if (!device_range(dst, n)) return kInvalidValue;
  return submit(s, NodeType::kMemcpy, [=](Context*) { std::memcpy(reinterpret_cast<void*>(dst), data->data(), n); });
}
int cuMemcpyDtoHAsync_v2(void* dst, Ptr src, size_t n, void* s) {
  auto to = reinterpret_cast<uint64_t>(dst);
  Stream* stream = resolve(s);
  bool wait = !known_host_range(to, n) && stream && !stream->capture;  // pageable memory is complete on return
  return copy(to, src, n, false, true, s, wait);
}

int cuMemsetD8_v2(Ptr d, unsigned char v, size_t n) { return fill(d, v, n, nullptr); }
int cuMemsetD16_v2(Ptr d, unsigned short v, size_t n) { return fill(d, v, n, nullptr); }
int cuMemsetD32_v2(Ptr d, unsigned v, size_t n) { return fill(d, v, n, nullptr); }
int cuMemsetD8Async(Ptr d, unsigned char v, size_t n, void* s) { return fill(d, v, n, s); }
int cuMemsetD16Async(Ptr d, unsigned short v, size_t n, void* s) { return fill(d, v, n, s); }
int cuMemsetD32Async(Ptr d, unsigned v, size_t n, void* s) { return fill(d, v, n, s); }
int cuMemsetD2D8_v2(Ptr d, size_t p, unsigned char v, size_t w, size_t h) { return fill_2d(d, p, v, w, h, nullptr); }
int cuMemsetD2D32_v2(Ptr d, size_t p, unsigned v, size_t w, size_t h) { return fill_2d(d, p, v, w, h, nullptr); }
int cuMemsetD2D8Async(Ptr d, size_t p, unsigned char v, size_t w, size_t h, void* s) { return fill_2d(d, p, v, w, h, s); }
int cuMemsetD2D32Async(Ptr d, size_t p, unsigned v, size_t w, size_t h, void* s) { return fill_2d(d, p, v, w, h, s); }

int cuPointerGetAttribute(void* out, int attribute, Ptr at) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  const Block* block = containing(at, 1);
  if (!block || !out) return kInvalidValue;
  switch (attribute) {
    case 2: *static_cast<unsigned*>(out) = block->space == Space::kHost ? 1 : 2; return kSuccess;   // memory type
    case 3: *static_cast<Ptr*>(out) = at; return kSuccess;                                         // device pointer
    case 8: *static_cast<unsigned*>(out) = block->space == Space::kManaged; return kSuccess;
    case 9: *static_cast<int*>(out) = 0; return kSuccess;                                          // device ordinal
    default: return kNotSupported;
  }
}

}  // extern "C"
#pragma GCC visibility pop
