// NVML of the software device: what monitors ask most, one setting that changes the card, and lists that need room.
#include <cstdio>
#include <cstring>

#include "device.h"

namespace software {

namespace {

enum Return : int {
  kNvmlSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNvmlNotFound = 6, kInsufficientSize = 7, kVersionMismatch = 25,
};

struct Card {
  unsigned limit_mw = 300000;
};
constexpr unsigned kLowest = 100000, kHighest = 350000;

std::atomic<int> users{0};
unsigned count() { return unsigned(setting("UMSH_SOFTWARE_DEVICES", 1)); }
std::vector<Card>& cards() {
  static auto* all = new std::vector<Card>(count());
  return *all;
}
int card_of(void* device, Card*& out) {
  if (users == 0) return kUninitialized;
  for (Card& card : cards())
    if (&card == device) return out = &card, kNvmlSuccess;
  return kInvalidArgument;
}
int text(char* out, unsigned room, const char* value) {
  if (users == 0) return kUninitialized;
  if (!out) return kInvalidArgument;
  if (std::strlen(value) >= room) return kInsufficientSize;
  std::strcpy(out, value);
  return kNvmlSuccess;
}
std::string uuid(size_t index) {
  char made[64];
  snprintf(made, sizeof made, "GPU-756d7368-0000-0000-0000-%012zu", index);
  return made;
}

}  // namespace

}  // namespace software

#pragma GCC visibility push(default)
using namespace software;
extern "C" {

int cuDeviceTotalMem_v2(size_t*, int);
int cuMemGetInfo_v2(size_t*, size_t*);

int nvmlInitWithFlags(unsigned) { return ++users, kNvmlSuccess; }
int nvmlInit_v2() { return nvmlInitWithFlags(0); }
int nvmlShutdown() { return users == 0 ? int(kUninitialized) : (--users, int(kNvmlSuccess)); }
int nvmlSystemGetDriverVersion(char* out, unsigned room) { return text(out, room, "0.1.software"); }
int nvmlSystemGetNVMLVersion(char* out, unsigned room) { return text(out, room, "13.0.software"); }
int nvmlSystemGetCudaDriverVersion_v2(int* out) {
  if (users == 0) return kUninitialized;
  if (!out) return kInvalidArgument;
  *out = 13000;
  return kNvmlSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* out) {
  if (users == 0) return kUninitialized;
  if (!out) return kInvalidArgument;
  *out = count();
  return kNvmlSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  if (users == 0) return kUninitialized;
  if (!out || index >= cards().size()) return kInvalidArgument;
  *out = &cards()[index];
  return kNvmlSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* wanted, void** out) {
  if (users == 0) return kUninitialized;
  if (!wanted || !out) return kInvalidArgument;
  for (size_t i = 0; i < cards().size(); ++i)
    if (uuid(i) == wanted) return *out = &cards()[i], kNvmlSuccess;
  return kNvmlNotFound;
}
int nvmlDeviceGetIndex(void* device, unsigned* out) {
  Card* card;
  if (int error = card_of(device, card)) return error;
  if (!out) return kInvalidArgument;
  *out = unsigned(card - cards().data());
  return kNvmlSuccess;
}
int nvmlDeviceGetName(void* device, char* out, unsigned room) {
  Card* card;
  int error = card_of(device, card);
  return error ? error : text(out, room, "umsh software device");
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned room) {
  Card* card;
  int error = card_of(device, card);
  return error ? error : text(out, room, uuid(size_t(card - cards().data())).c_str());
}

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct MemoryInfoV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, MemoryInfo* out) {
  Card* card;
  if (int error = card_of(device, card)) return error;
  if (!out) return kInvalidArgument;
  size_t total = 0;
  cuDeviceTotalMem_v2(&total, int(card - cards().data()));
  *out = {total, total, 0};
  return kNvmlSuccess;
}
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryInfoV2* out) {
  MemoryInfo info;
  if (int error = nvmlDeviceGetMemoryInfo(device, &info)) return error;
  if (!out) return kInvalidArgument;
  if (out->version != (sizeof *out | 2u << 24)) return kVersionMismatch;
  *out = {out->version, info.total, 0, info.free, info.used};
  return kNvmlSuccess;
}

// Clocks in MHz: a list whose room the caller gives.
int nvmlDeviceGetSupportedMemoryClocks(void* device, unsigned* count, unsigned* clocks) {
  constexpr unsigned kClocks[] = {2619, 1593, 345};
  constexpr unsigned n = sizeof kClocks / sizeof *kClocks;
  Card* card;
  if (int error = card_of(device, card)) return error;
  if (!count) return kInvalidArgument;
  unsigned room = *count;
  *count = n;
  if (room < n || !clocks) return kInsufficientSize;
  std::memcpy(clocks, kClocks, sizeof kClocks);
  return kNvmlSuccess;
}

int nvmlDeviceGetPowerManagementLimit(void* device, unsigned* out) {
  Card* card;
  if (int error = card_of(device, card)) return error;
  if (!out) return kInvalidArgument;
  *out = card->limit_mw;
  return kNvmlSuccess;
}
int nvmlDeviceSetPowerManagementLimit(void* device, unsigned limit_mw) {
  Card* card;
  if (int error = card_of(device, card)) return error;
  if (limit_mw < kLowest || limit_mw > kHighest) return kInvalidArgument;
  card->limit_mw = limit_mw;
  return kNvmlSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
