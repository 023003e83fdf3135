#include "launch.h"

namespace umsh {

namespace {

enum Mode : uint8_t { kWhole = 0, kDelta = 1, kSame = 2, kForgotten = 3 };  // kForgotten: whole, and not remembered

// 8 bytes after the function's handle: how the record stands in the rest of the payload.
struct Form {
  uint8_t mode;
  uint8_t slot;
  uint16_t zero;
  uint32_t nwords;
};
static_assert(sizeof(Form) == 8, "a form has no padding");

constexpr size_t kWordsMax = (sizeof(LaunchHead) + kAttributesMax + kParametersMax + 16) / 8;
constexpr size_t kRingBytes = 256;  // what a ring costs besides its records

size_t differing(const uint64_t* a, const uint64_t* b, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += a[i] != b[i];
  return count;
}

// The remembered record that differs in the fewest words; -1 when none has this length.
int closest(const LaunchHistory::Ring& ring, const std::vector<uint64_t>& record, size_t& differences) {
  int best = -1;
  for (unsigned back = 1; back <= ring.used; ++back) {
    unsigned slot = (ring.next + kHistory - back) % kHistory;
    if (ring.records[slot].size() != record.size()) continue;
    size_t count = differing(ring.records[slot].data(), record.data(), record.size());
    if (best >= 0 && count >= differences) continue;
    best = int(slot);
    differences = count;
    if (count <= 1) break;  // nothing smaller is worth a longer search
  }
  return best;
}

void put(Writer& out, uint64_t function, Mode mode, int slot, size_t nwords) {
  Form form{mode, uint8_t(slot), 0, uint32_t(nwords)};
  out.u64(function);
  out.raw(&form, sizeof form);
}

// Each differing word: words skipped before it (255 = 255 and go on), a mask of its changed bytes, those bytes.
void put_delta(Writer& out, const std::vector<uint64_t>& base, const std::vector<uint64_t>& record) {
  size_t at = 0;
  for (size_t i = 0; i < record.size(); ++i) {
    uint64_t change = base[i] ^ record[i];
    if (change == 0) continue;
    uint8_t bytes[16];
    size_t n = 0;
    size_t gap = i - at;
    for (; gap >= 255; gap -= 255) {
      uint8_t more = 255;
      out.raw(&more, 1);
    }
    bytes[n++] = uint8_t(gap);
    size_t mask_at = n++;
    bytes[mask_at] = 0;
    for (unsigned byte = 0; byte < 8; ++byte) {
      if (((change >> (8 * byte)) & 0xFF) == 0) continue;
      bytes[mask_at] = uint8_t(bytes[mask_at] | (1u << byte));
      bytes[n++] = uint8_t(record[i] >> (8 * byte));
    }
    out.raw(bytes, n);
    at = i + 1;
  }
}

bool apply_delta(Reader& in, std::vector<uint64_t>& words) {
  size_t at = 0;
  while (in.left() > 0) {
    uint8_t gap, mask;
    if (!in.raw(&gap, 1)) return false;
    at += gap;
    if (at > words.size()) return false;
    if (gap == 255) continue;
    if (at >= words.size() || !in.raw(&mask, 1) || mask == 0) return false;
    auto* bytes = reinterpret_cast<uint8_t*>(&words[at++]);
    for (unsigned byte = 0; byte < 8; ++byte)
      if ((mask >> byte & 1) && !in.raw(bytes + byte, 1)) return false;
  }
  return in.ok();
}

bool whole(Reader& in, size_t nwords, std::vector<uint64_t>& words) {
  if (nwords > kWordsMax || in.left() != nwords * 8) return false;
  words.resize(nwords);
  return in.raw(words.data(), nwords * 8);
}

}  // namespace

void LaunchRecord::reset(const LaunchHead& head) {
  words_.resize((sizeof(LaunchHead) + padded(head.attributes_nbytes) + padded(head.parameters_nbytes)) / 8);
  std::memcpy(words_.data(), &head, sizeof head);
  // Parts are multiples of 8 but for their last word, which the caller may fill in part only.
  if (head.attributes_nbytes % 8) words_[sizeof(LaunchHead) / 8 + head.attributes_nbytes / 8] = 0;
  if (head.parameters_nbytes) std::memset(parameters(), 0, padded(head.parameters_nbytes));
}

bool LaunchRecord::consistent() const {
  if (words_.size() * 8 < sizeof(LaunchHead)) return false;
  const LaunchHead& h = head();
  if (h.attributes_nbytes > kAttributesMax || h.parameters_nbytes > kParametersMax) return false;
  if (uint32_t(h.kind) > uint32_t(LaunchKind::kExtended)) return false;
  return words_.size() * 8 == sizeof h + padded(h.attributes_nbytes) + padded(h.parameters_nbytes);
}

LaunchHistory::Ring* LaunchHistory::ring(uint64_t function) {
  if (function == last_function_ && last_ring_) return last_ring_;
  auto it = rings_.find(function);
  if (it == rings_.end()) {
    if (full()) return nullptr;
    it = rings_.emplace(function, Ring{}).first;
    nbytes_ += kRingBytes;
  }
  last_function_ = function;
  last_ring_ = &it->second;
  return last_ring_;
}

bool LaunchHistory::remember(Ring& ring, const std::vector<uint64_t>& record) {
  if (full()) return false;
  std::vector<uint64_t>& slot = ring.records[ring.next];
  if (slot.size() < record.size()) nbytes_ += (record.size() - slot.size()) * 8;
  slot = record;
  ring.next = (ring.next + 1) % kHistory;
  if (ring.used < kHistory) ++ring.used;
  return true;
}

void encode_launch(LaunchHistory& history, uint64_t function, const LaunchRecord& record, bool delta, Writer& out) {
  const std::vector<uint64_t>& words = record.words();
  LaunchHistory::Ring* ring = delta ? history.ring(function) : nullptr;
  size_t differences = 0;
  int slot = ring ? closest(*ring, words, differences) : -1;
  if (slot >= 0 && differences == 0) return put(out, function, kSame, slot, words.size());
  if (!ring || history.full()) {
    put(out, function, kForgotten, 0, words.size());
    return out.raw(words.data(), words.size() * 8);
  }
  // A delta costs up to 10 bytes a word: beyond two thirds of the words the whole record is as good.
  if (slot >= 0 && differences * 3 <= words.size() * 2) {
    put(out, function, kDelta, slot, words.size());
    put_delta(out, ring->records[unsigned(slot)], words);
  } else {
    put(out, function, kWhole, 0, words.size());
    out.raw(words.data(), words.size() * 8);
  }
  history.remember(*ring, words);
}

bool decode_launch(LaunchHistory& history, Reader& in, uint64_t& function, LaunchRecord& record) {
  Form form{};
  function = in.u64();
  if (!in.raw(&form, sizeof form) || form.zero != 0) return false;
  if (form.mode == kForgotten) return whole(in, form.nwords, record.words()) && record.consistent();
  LaunchHistory::Ring* ring = history.ring(function);
  if (!ring) return false;
  if (form.mode == kWhole) {
    if (!whole(in, form.nwords, record.words())) return false;
  } else {
    if (form.slot >= ring->used || ring->records[form.slot].size() != form.nwords) return false;
    record.words() = ring->records[form.slot];
    if (form.mode == kSame) return in.finished() && record.consistent();
    if (form.mode != kDelta || !apply_delta(in, record.words())) return false;
  }
  return record.consistent() && history.remember(*ring, record.words());
}

}  // namespace umsh
