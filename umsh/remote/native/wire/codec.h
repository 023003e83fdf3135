// Writer and Reader of payloads. Every scalar takes 8 bytes; a blob is its length and its bytes, padded to 8.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace umsh {

constexpr uint64_t kNullBlob = ~uint64_t{0};  // length that stands for a null pointer

inline size_t padded(size_t nbytes) { return (nbytes + 7) & ~size_t{7}; }

// Appends to a buffer that keeps its capacity between calls.
class Writer {
 public:
  void clear() { buffer_.clear(); }
  void u64(uint64_t value) { append(&value, 8); }
  void raw(const void* data, size_t nbytes) { append(data, nbytes); }
  void blob(const void* data, uint64_t nbytes) {
    if (data == nullptr) return u64(kNullBlob);
    u64(nbytes);
    append(data, nbytes);
    static constexpr char zeros[8] = {};
    append(zeros, padded(nbytes) - nbytes);
  }
  void text(const char* s) { blob(s, s ? std::strlen(s) : 0); }
  // Room for a blob that the caller fills: returns where its bytes go; valid until the next append.
  char* reserve_blob(uint64_t nbytes) {
    u64(nbytes);
    size_t at = buffer_.size();
    buffer_.resize(at + padded(nbytes));
    return buffer_.data() + at;
  }
  char* data() { return buffer_.data(); }
  const char* data() const { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }

 private:
  void append(const void* data, size_t nbytes) {
    const char* bytes = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + nbytes);
  }
  std::vector<char> buffer_;
};

// A blob inside a payload; `data` is null for kNullBlob.
struct Blob {
  const char* data = nullptr;
  uint64_t nbytes = 0;
};

// Reads a payload that came from the wire. The first read past the end makes ok() false for good; reads then give
// zeros, so that a decoder can read all its fields and check once.
class Reader {
 public:
  Reader(const void* data, size_t nbytes) : at_(static_cast<const char*>(data)), left_(nbytes) {}
  uint64_t u64() {
    uint64_t value = 0;
    raw(&value, 8);
    return value;
  }
  bool raw(void* out, size_t nbytes) {
    if (!ok_ || nbytes > left_) return fail();
    std::memcpy(out, at_, nbytes);
    at_ += nbytes;
    left_ -= nbytes;
    return true;
  }
  Blob blob() {
    uint64_t nbytes = u64();
    if (!ok_ || nbytes == kNullBlob) return {};
    if (nbytes > left_ || padded(nbytes) > left_) {
      fail();
      return {};
    }
    Blob blob{at_, nbytes};
    at_ += padded(nbytes);
    left_ -= padded(nbytes);
    return blob;
  }
  // A blob of exactly `nbytes`, copied out; a null blob leaves `out` as it is and gives false with ok() still true.
  bool exact(void* out, size_t nbytes) {
    Blob b = blob();
    if (b.data == nullptr) return false;
    if (b.nbytes != nbytes) return fail();
    std::memcpy(out, b.data, nbytes);
    return true;
  }
  // Text of at most `max` bytes without NUL inside; null gives false with ok() still true.
  bool text(std::string& out, size_t max = 4096) {
    Blob b = blob();
    if (b.data == nullptr) return false;
    if (b.nbytes > max || std::memchr(b.data, 0, b.nbytes) != nullptr) return fail();
    out.assign(b.data, b.nbytes);
    return true;
  }
  bool ok() const { return ok_; }
  size_t left() const { return left_; }
  bool finished() const { return ok_ && left_ == 0; }

 private:
  bool fail() {
    ok_ = false;
    return false;
  }
  const char* at_;
  size_t left_;
  bool ok_ = true;
};

}  // namespace umsh
