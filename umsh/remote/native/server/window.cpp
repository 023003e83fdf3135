#include "server/window.h"

#include "server/decode.h"

namespace umsh {

namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;
constexpr uint64_t kSmallMax = uint64_t{1} << 20;      // larger blocks have memory of their own
constexpr uint64_t kBatch = uint64_t{32} << 20;        // mapped at once for small blocks
constexpr uint64_t kAlign = 512;
constexpr size_t kBlocksMax = size_t{1} << 20;
constexpr int kInvalid = 1, kOutOfMemory = 2, kUnsupported = 801;

uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

struct Properties {  // CUmemAllocationProp: pinned memory of one device
  int type = 1, handles = 0, location = 1, device;
  void* metadata = nullptr;
  uint64_t flags = 0;
};
struct Access {  // CUmemAccessDesc: read and write from the device
  int location = 1, device, flags = 3;
};

}  // namespace

void FreeRanges::give(uint64_t address, uint64_t nbytes) {
  auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first == address + nbytes) {
    nbytes += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second == address)
    std::prev(next)->second += nbytes;
  else
    ranges_[address] = nbytes;
}

uint64_t FreeRanges::take(uint64_t nbytes, uint64_t align) {
  for (auto& range : ranges_) {
    uint64_t at = up(range.first, align);
    if (at + nbytes > range.first + range.second) continue;
    take_at(at, nbytes);
    return at;
  }
  return 0;
}

bool FreeRanges::take_at(uint64_t address, uint64_t nbytes) {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return false;
  --it;
  uint64_t start = it->first, end = it->first + it->second;
  if (address + nbytes > end) return false;
  ranges_.erase(it);
  if (address > start) ranges_[start] = address - start;
  if (address + nbytes < end) ranges_[address + nbytes] = end - address - nbytes;
  return true;
}

int Memory::open(uint64_t base, uint64_t nbytes, uint64_t mirror_base, uint64_t mirror_nbytes) {
  bool bad = nbytes == 0 || nbytes % kGranule || base % kGranule || mirror_nbytes % kGranule || base + nbytes < base;
  if (bad || !driver_.cuMemAddressReserve || !driver_.cuMemCreate || !driver_.cuMemMap || !driver_.cuMemSetAccess) return kUnsupported;
  uint64_t got = 0;
  if (driver_.cuMemAddressReserve(&got, nbytes, 0, base, 0)) return kUnsupported;
  if (got == base) {
    base_ = base;
    window_nbytes_ = nbytes;
    addresses_.give(base, nbytes);
    got = 0;
    int error = driver_.cuMemAddressReserve(&got, mirror_nbytes, 0, mirror_base, 0);
    if (!error && got == mirror_base) {
      mirror_ = mirror_base;
      mirror_nbytes_ = mirror_nbytes;
      return 0;
    }
    if (!error) driver_.cuMemAddressFree(got, mirror_nbytes);
    got = base;
    addresses_ = FreeRanges();
    window_nbytes_ = 0;
  }
  driver_.cuMemAddressFree(got, nbytes);
  return kUnsupported;
}

int Memory::map(uint64_t address, uint64_t nbytes, int device, uint64_t& memory) {
  if (limit_ && (nbytes > limit_ || used_ > limit_ - nbytes)) return kOutOfMemory;
  Properties properties{};
  properties.device = device;
  Access access{};
  access.device = device;
  if (int error = driver_.cuMemCreate(&memory, nbytes, &properties, 0)) return error;
  int error = driver_.cuMemMap(address, nbytes, 0, memory, 0);
  if (!error && (error = driver_.cuMemSetAccess(address, nbytes, &access, 1))) driver_.cuMemUnmap(address, nbytes);
  if (error) {
    driver_.cuMemRelease(memory);
    return error;
  }
  used_ += nbytes;
  count(stats_->device_bytes, nbytes);
  return 0;
}

// Small blocks lie in granules that are mapped by the batch: mapping costs several times an allocation.
int Memory::allocate_small(uint64_t nbytes, int device, uint64_t& address, uint64_t& held) {
  held = up(nbytes, kAlign);
  FreeRanges& ranges = small_[device];
  address = ranges.take(held, kAlign);
  for (uint64_t batch = kBatch; address == 0 && batch >= kGranule; batch = batch == kBatch ? kGranule : 0) {
    uint64_t at = addresses_.take(batch, kGranule), memory = 0;
    if (at == 0) return kOutOfMemory;
    if (int error = map(at, batch, device, memory)) {
      addresses_.give(at, batch);
      if (batch == kGranule || error != kOutOfMemory) return error;
      continue;
    }
    ranges.give(at, batch);
    address = ranges.take(held, kAlign);
  }
  small_device_[address] = device;
  return address ? 0 : kOutOfMemory;
}

int Memory::allocate_large(uint64_t nbytes, int device, uint64_t& address, Block& block) {
  block.held = up(nbytes, kGranule);
  block.kind = Block::kLarge;
  if (block.held > window_nbytes_) return kOutOfMemory;
  address = addresses_.take(block.held, kGranule);
  if (address == 0) return kOutOfMemory;
  int error = map(address, block.held, device, block.memory);
  if (error) addresses_.give(address, block.held);
  return error;
}

void Memory::put(uint64_t address, const Block& block) { blocks_[address] = block; }

int Memory::allocate(uint64_t nbytes, int device, uint64_t& address) {
  if (nbytes == 0) return kInvalid;
  if (nbytes > uint64_t{1} << 46) return kOutOfMemory;
  for (bool again = false;; again = true) {
    int error;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Block block{nbytes, 0, 0, Block::kSmall};
      if (blocks_.size() >= kBlocksMax) return kOutOfMemory;
      if (!windowed()) {
        block.kind = Block::kDriver;
        block.held = nbytes;
        bool over = limit_ && (nbytes > limit_ || used_ > limit_ - nbytes);
        error = over ? kOutOfMemory : invoke(driver_.cuMemAlloc_v2, kUnsupported, &address, nbytes);
        if (!error) used_ += nbytes, count(stats_->device_bytes, nbytes);
      } else {
        error = nbytes < kSmallMax ? allocate_small(nbytes, device, address, block.held) : allocate_large(nbytes, device, address, block);
      }
      if (!error) return put(address, block), 0;
    }
    if (error != kOutOfMemory || again || !unsettled()) return error;
    settle();  // what was freed may be enough
  }
}

int Memory::allocate_mirror(uint64_t address, uint64_t nbytes, int device) {
  if (unsettled()) settle();  // the client may use an address again that it has just given back
  std::lock_guard<std::mutex> lock(mutex_);
  bool inside = nbytes && address >= mirror_ && nbytes <= mirror_nbytes_ && address - mirror_ <= mirror_nbytes_ - nbytes;
  if (!inside || address % kGranule || blocks_.count(address)) return kInvalid;
  auto next = blocks_.lower_bound(address);
  if (next != blocks_.end() && next->first < address + nbytes) return kInvalid;
  Block block{nbytes, up(nbytes, kGranule), 0, Block::kMirror};
  if (int error = map(address, block.held, device, block.memory)) return error;
  put(address, block);
  return 0;
}

int Memory::free(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = blocks_.find(address);
  if (it == blocks_.end() || it->second.kind == Block::kForeign) return kInvalid;
  freed_.push_back(*it);
  blocks_.erase(it);
  unsettled_.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

void Memory::release(uint64_t address, const Block& block) {
  if (block.kind == Block::kSmall) {
    small_[small_device_[address]].give(address, block.held);
    small_device_.erase(address);
    return;
  }
  used_ -= block.held;
  stats_->device_bytes.fetch_sub(block.held, std::memory_order_relaxed);
  if (block.kind == Block::kDriver) {
    driver_.cuMemFree_v2(address);
    return;
  }
  driver_.cuMemUnmap(address, block.held);
  driver_.cuMemRelease(block.memory);
  if (block.kind == Block::kLarge) addresses_.give(address, block.held);
}

// Work that was sent before the free may still use the memory: it is given back when all of that is done.
void Memory::settle() {
  std::vector<std::pair<uint64_t, Block>> settled;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    settled.swap(freed_);
  }
  if (settled.empty()) return;
  driver_.cuCtxSynchronize();
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& block : settled) release(block.first, block.second);
  unsettled_.fetch_sub(settled.size(), std::memory_order_relaxed);
}

void Memory::add_foreign(uint64_t address, uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!blocks_.count(address)) put(address, {nbytes, nbytes, 0, Block::kForeign});
}

// The range may run over blocks that lie side by side, as a client's own mappings do.
int Memory::check(uint64_t address, uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return kInvalid;
  --it;
  for (;;) {
    uint64_t offset = address - it->first, left = it->second.nbytes - offset;
    if (offset > it->second.nbytes) return kInvalid;
    if (nbytes <= left) return 0;
    address += left;
    nbytes -= left;
    if (++it == blocks_.end() || it->first != address) return kInvalid;
  }
}

int Memory::reserve(uint64_t nbytes, uint64_t align, uint64_t hint, uint64_t& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool bad = nbytes == 0 || nbytes % kGranule || nbytes > window_nbytes_ || align > window_nbytes_ || (align & (align - 1));
  if (!windowed() || bad) return windowed() ? kInvalid : kUnsupported;
  bool at_hint = hint && hint % kGranule == 0 && addresses_.take_at(hint, nbytes);
  address = at_hint ? hint : addresses_.take(nbytes, align > kGranule ? align : kGranule);
  return address ? 0 : kOutOfMemory;
}

void Memory::unreserve(uint64_t address, uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  addresses_.give(address, nbytes);
}

int Memory::charge(uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (limit_ && (nbytes > limit_ || used_ > limit_ - nbytes)) return kOutOfMemory;
  used_ += nbytes;
  count(stats_->device_bytes, nbytes);
  return 0;
}

void Memory::uncharge(uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_ -= nbytes;
  stats_->device_bytes.fetch_sub(nbytes, std::memory_order_relaxed);
}

void Memory::forget_foreign(uint64_t address, uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = blocks_.lower_bound(address); it != blocks_.end() && it->first - address < nbytes;)
    it = it->second.kind == Block::kForeign ? blocks_.erase(it) : std::next(it);
}

}  // namespace umsh
