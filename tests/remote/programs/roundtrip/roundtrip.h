// Helpers of the generated round-trip tests: random arguments, what a backend's function sees, and comparisons.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "client/generated.h"
#include "server/session.h"

namespace roundtrip {

using namespace umsh;

extern std::mt19937_64 random_bits;
extern Session session;
// Runs inside the backend's function, with its arguments as words; gives what the function returns.
extern std::function<int(const uint64_t*)> on_call;
extern bool lenient;             // replies are damaged on purpose: nothing is compared
extern const char* current;      // the call under test

inline uint64_t below(uint64_t n) { return random_bits() % n; }
inline bool chance(unsigned one_in) { return below(one_in) == 0; }

void fail(const char* what);
inline void check(bool holds, const char* what) {
  if (!holds && !lenient) fail(what);
}

template <class T>
uint64_t bits(T value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
// A word as the fake function sees it, narrowed to the parameter's size again.
template <class T>
bool same(uint64_t arrived, T sent) {
  return std::memcmp(&arrived, &sent, sizeof sent) == 0;
}

inline bool equal(uint64_t arrived, const void* sent, size_t nbytes) {
  return std::memcmp(reinterpret_cast<void*>(arrived), sent, nbytes) == 0;
}

template <class T>
T any() {
  uint64_t word = chance(8) ? (chance(2) ? 0 : ~uint64_t{0}) : random_bits();
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// Bytes on the heap with nothing behind them, so that a checker sees each byte too far.
class Bytes {
 public:
  Bytes(size_t nbytes, bool random) : data_(static_cast<char*>(std::malloc(nbytes ? nbytes : 1))), nbytes_(nbytes) {
    for (size_t i = 0; i < nbytes; ++i) data_[i] = random ? char(random_bits()) : 0;
  }
  ~Bytes() { std::free(data_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  char* data() { return data_; }
  size_t size() const { return nbytes_; }
  template <class T>
  T* as() { return reinterpret_cast<T*>(data_); }

 private:
  char* data_;
  size_t nbytes_;
};

inline void* fresh() {
  static uintptr_t next = 0x7000000000;
  return reinterpret_cast<void*>(next += 64);
}
inline void* known(Kind kind, void* real) {
  static uint64_t next = 0x1000;
  uint64_t handle = next++;
  session.add(kind, handle, real);
  return reinterpret_cast<void*>(handle);
}
inline void* real_of(Kind kind, void* handle) {
  int error = 0;
  return session.lookup(kind, reinterpret_cast<uint64_t>(handle), &error);
}
inline uint64_t address() { return Session::kDeviceBase + below(Session::kDeviceBytes / 2); }

inline std::string letters(size_t n) {
  std::string s;
  for (size_t i = 0; i < n; ++i) s.push_back(char('a' + below(26)));
  return s;
}

// The result of the fake function: mostly success.
inline int outcome() { return chance(8) ? int(1 + below(900)) : 0; }

// The backend's functions: all of one signature share their code, and on_call knows which call is under test.
template <class... A>
int fake(A... arguments) {
  uint64_t words[] = {bits(arguments)..., 0};
  return on_call ? on_call(words) : 0;
}
template <class... A>
void install(int (*&slot)(A...)) { slot = &fake<A...>; }

struct Test {
  const char* name;
  Op op;
  void (*run)();
};

}  // namespace roundtrip
