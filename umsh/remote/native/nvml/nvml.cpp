// What libnvidia-ml.so.1 answers itself: connecting, and the names of errors. The rest is generated.
#include <array>
#include <atomic>

#include "client/generated.h"
#include "client/session.h"

using namespace umsh;

namespace {

constexpr int kUninitialized = 1, kUnknownError = 999;
std::atomic<int> users{0};

int initialize(unsigned flags) {
  if (int error = connect_session()) return error == 3 ? kUninitialized : kUnknownError;
  int result = Call(kOp_nvmlInitWithFlags).u64(flags).wait();
  if (result == 0) ++users;
  return result;
}

struct Text {
  int code;
  const char* text;
};
constexpr Text kTexts[] = {
    {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
    {4, "Insufficient Permissions"}, {5, "Already Initialized"}, {6, "Not Found"}, {7, "Insufficient Size"},
    {8, "Insufficient External Power"}, {9, "Driver Not Loaded"}, {10, "Timeout"}, {11, "Interrupt Request Issue"},
    {12, "NVML Shared Library Not Found"}, {13, "Function Not Found"}, {14, "Corrupted infoROM"}, {15, "GPU is lost"},
    {16, "GPU requires restart"}, {17, "The operating system has blocked the request."}, {18, "RM has detected an NVML/RM version mismatch."},
    {19, "In use by another client"}, {20, "Insufficient Memory"}, {21, "No data"}, {22, "Not supported while ECC is enabled"},
    {23, "Insufficient resources"}, {24, "Frequency not supported"}, {25, "Argument version mismatch"}, {26, "Deprecated"},
    {27, "Not ready"}, {28, "GPU not found"}, {29, "Invalid state"},
};

}  // namespace

UMSH_EXPORT int nvmlInitWithFlags(unsigned flags) { return initialize(flags); }
UMSH_EXPORT int nvmlInit_v2() { return initialize(0); }
UMSH_EXPORT int nvmlInit() { return initialize(0); }

// The server keeps its NVML until the session ends: only this process's count goes down.
UMSH_EXPORT int nvmlShutdown() {
  int before = users.load();
  while (before > 0 && !users.compare_exchange_weak(before, before - 1)) {
  }
  return before > 0 ? 0 : kUninitialized;
}

UMSH_EXPORT const char* nvmlErrorString(int result) {
  for (const Text& entry : kTexts)
    if (entry.code == result) return entry.text;
  return "Unknown Error";
}
