// What the generated server functions use: arrays whose sizes came from the wire, and calls of functions that may lack.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "generated/kinds.h"
#include "wire/attributes.h"
#include "wire/codec.h"
#include "wire/frame.h"

namespace umsh {

constexpr int kWireError = -1;  // the payload is malformed: the session ends
constexpr uint64_t kArrayMax = kPayloadMax / 2;  // bytes of one array, so that its reply fits into a frame

enum class Way { kIn, kOut };  // of a struct whose handles are translated

template <class T>
T in_scalar(Reader& in) {
  uint64_t word = in.u64();
  if constexpr (std::is_floating_point_v<T>) {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  } else {
    return T(word);
  }
}

template <class T>
void out_scalar(Writer& out, T value) {
  uint64_t word = 0;
  if constexpr (std::is_floating_point_v<T>) std::memcpy(&word, &value, sizeof value);
  else if constexpr (std::is_signed_v<T>) word = uint64_t(int64_t(value));
  else word = uint64_t(value);
  out.u64(word);
}

// The backend's function, or `missing` where the backend has none of this name.
template <class F, class... A>
int invoke(F* function, int missing, A... arguments) {
  return function ? function(arguments...) : missing;
}

inline bool fits_array(uint64_t count, uint64_t size) { return count <= kArrayMax && count * size <= kArrayMax; }

// An array that the call reads; null stays null. `fits` is false when its bytes are not what its count says.
class InArray {
 public:
  InArray(const Blob& blob, uint64_t count, uint64_t size) : on_(blob.data != nullptr) {
    fits = !on_ || (fits_array(count, size) && blob.nbytes == count * size);
    if (!on_ || !fits) return;
    words_.resize(padded(blob.nbytes) / 8 + 1);
    std::memcpy(words_.data(), blob.data, blob.nbytes);
    nbytes_ = blob.nbytes;
  }
  void* data() { return on_ ? words_.data() : nullptr; }
  bool fits;

 protected:
  bool on_;
  uint64_t nbytes_ = 0;
  std::vector<uint64_t> words_;
};

class InOutArray : public InArray {
 public:
  using InArray::InArray;
  void write(Writer& out, uint64_t) { out.blob(data(), nbytes_); }
};

// A struct that says its own size; the backend gets at least the size of the newest version, zero-filled.
template <size_t kNewest>
class Versioned {
 public:
  explicit Versioned(const Blob& blob) : on_(blob.data != nullptr) {
    fits = !on_ || (blob.nbytes >= 4 && blob.nbytes <= kVersionedMax && versioned_nbytes(blob.data, kNewest) == blob.nbytes);
    if (!on_ || !fits) return;
    nbytes_ = blob.nbytes;
    words_.resize(padded(nbytes_ > kNewest ? nbytes_ : kNewest) / 8);
    std::memcpy(words_.data(), blob.data, nbytes_);
  }
  void* data() { return on_ ? words_.data() : nullptr; }
  void write(Writer& out) { out.blob(data(), nbytes_); }
  bool fits;

 private:
  bool on_;
  uint64_t nbytes_ = 0;
  std::vector<uint64_t> words_;
};

// Handles that the call reads, translated.
template <class S>
class InHandlesOf {
 public:
  InHandlesOf(S& s, Kind kind, const Blob& blob, uint64_t count, int* error) : on_(blob.data != nullptr) {
    fits = !on_ || (fits_array(count, 8) && blob.nbytes == count * 8);
    if (!on_ || !fits) return;
    real_.resize(count + 1);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t handle;
      std::memcpy(&handle, blob.data + 8 * i, 8);
      real_[i] = s.lookup(kind, handle, error);
    }
  }
  void** handles() { return on_ ? real_.data() : nullptr; }
  bool fits;

 private:
  bool on_;
  std::vector<void*> real_;
};

// An array that the call fills. `fits` is false when it is longer than a reply can be.
class OutArray {
 public:
  OutArray(bool on, uint64_t count, uint64_t size) : fits(!on || fits_array(count, size)), on_(on), size_(size) {
    if (!on_ || !fits) return;
    count_ = count;
    words_.resize(padded(count * size) / 8 + 1);
  }
  void* data() { return on_ ? words_.data() : nullptr; }
  void** handles() { return on_ ? reinterpret_cast<void**>(words_.data()) : nullptr; }
  // The first `filled` elements; a call may say that there are more than there was room for.
  void write(Writer& out, uint64_t filled) { out.blob(data(), size_ * (filled < count_ ? filled : count_)); }
  void write_text(Writer& out) {
    if (!on_) return out.blob(nullptr, 0);
    const char* text = reinterpret_cast<const char*>(words_.data());
    uint64_t n = strnlen(text, count_);
    out.blob(text, n < count_ ? n + 1 : n);
  }
  template <class S>
  void write_handles(S& s, Kind kind, Writer& out, uint64_t filled) {
    uint64_t n = filled < count_ ? filled : count_;
    if (on_ && fits)
      for (uint64_t i = 0; i < n; ++i) words_[i] = words_[i] ? s.intern(kind, reinterpret_cast<void*>(words_[i])) : 0;
    write(out, n);
  }
  bool fits;

 private:
  bool on_;
  uint64_t size_;
  uint64_t count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace umsh
