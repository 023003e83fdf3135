#include "mirror.h"

#include <algorithm>
#include <cstring>

#include "call.h"
#include "hooks.h"
#include "session.h"

namespace umsh {

namespace {

constexpr size_t kPage = 4096;

int upload(uint64_t address, const char* data, uint64_t nbytes) {
  Session& s = *session();
  uint64_t head[] = {address, nbytes};
  bool sent = s.connection->send_with(kOpMirrorUpload, head, sizeof head, data, nbytes, thread().current());
  return sent ? kSuccess : kDeviceUnavailable;
}

}  // namespace

Mirror::Copy* Mirror::find(uint64_t device) {
  auto it = copies_.upper_bound(device);
  if (it == copies_.begin()) return nullptr;
  Copy* copy = std::prev(it)->second.get();
  return device - copy->device < copy->nbytes ? copy : nullptr;
}

int Mirror::share(uint64_t device, void* host, uint64_t nbytes, bool managed) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (copies_.count(device)) return kSuccess;
  if (!inside(device)) return kNotSupported;
  int error = Call(kOpMirrorAlloc).u64(device).u64(nbytes).u64(managed).reply().result;
  if (error) return error;
  auto copy = std::make_unique<Copy>();
  copy->device = device;
  copy->host = static_cast<char*>(host);
  copy->nbytes = nbytes;
  copy->managed = managed;
  copy->synced.assign(nbytes, 0);  // the server's memory starts as zeros
  copies_[device] = std::move(copy);
  any_ = true;
  if (managed) any_managed_ = true;
  return kSuccess;
}

void Mirror::unshare(uint64_t device) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (copies_.erase(device) == 0) return;
  Call(kOpMirrorFree).u64(device).status();
  any_ = !copies_.empty();
  any_managed_ = std::any_of(copies_.begin(), copies_.end(), [](const auto& entry) { return entry.second->managed; });
}

bool Mirror::shared(uint64_t device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return copies_.count(device) != 0;
}

// Whole pages that differ from what both sides had, neighbours together.
int Mirror::send_changes(Copy& copy) {
  wait_downloads(copy.host, copy.nbytes);  // what is still on its way there comes before the work that reads it
  for (uint64_t at = 0; at < copy.nbytes;) {
    auto page = [&](uint64_t start) { return std::min<uint64_t>(kPage, copy.nbytes - start); };
    auto same = [&](uint64_t start) { return std::memcmp(copy.host + start, copy.synced.data() + start, page(start)) == 0; };
    if (same(at)) {
      at += page(at);
      continue;
    }
    uint64_t end = at;
    while (end < copy.nbytes && end - at < kPieceBytes && !same(end)) end += page(end);
    std::memcpy(copy.synced.data() + at, copy.host + at, end - at);
    if (int error = upload(copy.device + at, copy.synced.data() + at, end - at)) return error;
    at = end;
  }
  return kSuccess;
}

int Mirror::use(Copy& copy, uint64_t stream) {
  copy.streams.insert(stream);
  dirty_ = true;
  return send_changes(copy);
}

int Mirror::before_launch(const uint64_t* words, size_t count, uint64_t stream) {
  if (!any()) return kSuccess;
  std::lock_guard<std::mutex> lock(mutex_);
  if (any_managed_)
    for (auto& entry : copies_)
      if (entry.second->managed)
        if (int error = use(*entry.second, stream)) return error;
  for (size_t i = 0; i < count; ++i) {
    if (!inside(words[i])) continue;
    Copy* copy = find(words[i]);
    if (copy && !copy->managed)
      if (int error = use(*copy, stream)) return error;
  }
  return kSuccess;
}

bool Mirror::under_way(const void* from, uint64_t nbytes) const {
  if (clean()) return false;
  auto* begin = static_cast<const char*>(from);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& entry : copies_) {
    const Copy& copy = *entry.second;
    if (!copy.streams.empty() && copy.host < begin + nbytes && begin < copy.host + copy.nbytes) return true;
  }
  return false;
}

int Mirror::before_any(uint64_t stream) {
  if (!any()) return kSuccess;
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& entry : copies_)
    if (int error = use(*entry.second, stream)) return error;
  return kSuccess;
}

// Only bytes that the device changed are written: the CPU may have written others of the same page meanwhile.
void Mirror::take_page(Copy& copy, uint64_t at, const char* page, uint64_t nbytes) {
  for (uint64_t i = 0; i < nbytes; ++i)
    if (page[i] != copy.synced[at + i]) copy.host[at + i] = page[i];
  std::memcpy(copy.synced.data() + at, page, nbytes);
}

int Mirror::fetch(Copy& copy) {
  std::vector<char> piece;
  for (uint64_t at = 0; at < copy.nbytes; at += kPieceBytes) {
    uint64_t nbytes = std::min<uint64_t>(kPieceBytes, copy.nbytes - at);
    piece.resize(nbytes);
    Reply reply = Call(kOpMirrorDownload).u64(copy.device + at).u64(nbytes).reply();
    if (reply.result) return reply.result;
    if (reply.blob(piece.data(), nbytes) != nbytes) return kDeviceUnavailable;
    for (uint64_t page = 0; page < nbytes; page += kPage) {
      uint64_t length = std::min<uint64_t>(kPage, nbytes - page);
      if (std::memcmp(piece.data() + page, copy.synced.data() + at + page, length) == 0) continue;
      take_page(copy, at + page, piece.data() + page, length);
    }
  }
  return kSuccess;
}

int Mirror::after_wait(uint64_t stream, bool settles) {
  if (clean()) return kSuccess;
  std::lock_guard<std::mutex> lock(mutex_);
  bool under_way = false;
  for (auto& entry : copies_) {
    Copy& copy = *entry.second;
    // The legacy stream waits for the others: it sees their writes, but they may go on.
    bool covered = stream == kEveryStream || stream <= kStreamLegacy || copy.streams.count(stream);
    if (copy.streams.empty()) continue;
    if (covered)
      if (int error = fetch(copy)) return error;
    if (settles && stream == kEveryStream) copy.streams.clear();
    if (settles) copy.streams.erase(stream);
    under_way = under_way || !copy.streams.empty();
  }
  dirty_ = under_way;
  return kSuccess;
}

}  // namespace umsh
