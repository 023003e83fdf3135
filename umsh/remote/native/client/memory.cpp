#include "memory.h"

namespace umsh {

namespace {

template <class Map>
auto at_or_before(Map& map, uint64_t address) {
  auto it = map.upper_bound(address);
  return it == map.begin() ? map.end() : std::prev(it);
}

}  // namespace

void Memory::add(Block block) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  block.id = next_id_++;
  if (block.device && block.device != block.address) device_[block.device] = block.address;
  blocks_[block.address] = block;
}

bool Memory::remove(uint64_t address, Block* out) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  auto it = blocks_.find(address);
  if (it == blocks_.end()) return false;
  if (out) *out = it->second;
  device_.erase(it->second.device);
  blocks_.erase(it);
  return true;
}

bool Memory::find(uint64_t address, Block* out) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto it = at_or_before(blocks_, address);
  if (it == blocks_.end() || !it->second.holds(address, 1)) return false;
  *out = it->second;
  return true;
}

bool Memory::find_device(uint64_t address, Block* out) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto other = at_or_before(device_, address);
  if (other != device_.end()) {
    const Block& block = blocks_.at(other->second);
    if (address - block.device < block.nbytes) {
      *out = block;
      return true;
    }
  }
  auto it = at_or_before(blocks_, address);
  if (it == blocks_.end() || !it->second.holds(address, 1) || it->second.device != it->second.address) return false;
  *out = it->second;
  return true;
}

bool Memory::overlaps(uint64_t address, uint64_t nbytes) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto it = at_or_before(blocks_, address);
  if (it != blocks_.end() && it->second.holds(address, 1)) return true;
  it = blocks_.lower_bound(address);
  return it != blocks_.end() && it->first - address < nbytes;
}

void Memory::set_device(uint64_t address, uint64_t device) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  auto it = blocks_.find(address);
  if (it == blocks_.end()) return;
  it->second.device = device;
  if (device != address) device_[device] = address;
}

void Memory::clear_context(uint64_t context) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    bool gone = it->second.context == context && it->second.kind == MemoryKind::kDevice;
    it = gone ? blocks_.erase(it) : std::next(it);
  }
}

void Ranges::reset(uint64_t base, uint64_t nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.clear();
  if (nbytes) free_[base] = nbytes;
}

uint64_t Ranges::take(uint64_t nbytes) {
  nbytes = (nbytes + kStep - 1) / kStep * kStep;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < nbytes) continue;
    auto [address, length] = *it;
    free_.erase(it);
    if (length > nbytes) free_[address + nbytes] = length - nbytes;
    return address;
  }
  return 0;
}

void Ranges::give(uint64_t address, uint64_t nbytes) {
  nbytes = (nbytes + kStep - 1) / kStep * kStep;
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + nbytes) {
    nbytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += nbytes;
      return;
    }
  }
  free_[address] = nbytes;
}

}  // namespace umsh
