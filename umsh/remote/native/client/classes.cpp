#include "classes.h"

#include <array>
#include <cstring>

#include "../generated/ops.h"

namespace umsh {

namespace {

constexpr size_t kOpsMax = 0x1000;

struct Row {
  Op op;
  const char* name;
  CallClass kind;
  uint8_t flags;
};
constexpr Row kRows[] = {
#include "../generated/calls.inc"
    {kOpOpen, "open", CallClass::kSync, 0},
    {kOpModuleData, "module data", CallClass::kAsync, 0},
    {kOpUpload, "upload", CallClass::kAsync, 0},
    {kOpDownloadAsync, "asynchronous download", CallClass::kAsync, 0},
    {kOpMirrorUpload, "upload of mapped memory", CallClass::kAsync, 0},
    {kOpMirrorFree, "free of mapped memory", CallClass::kAsync, 0},
    {kOpLaunch, "launch", CallClass::kAsync, 0},
    {kOpHostFunction, "host function", CallClass::kAsync, 0},
};

bool contains(const char* name, const char* word) { return std::strstr(name, word) != nullptr; }

CallInfo describe(const Row& row) {
  CallInfo info{row.op, row.name, row.kind, row.flags, false, false, false};
  bool driver = row.op >= kFirstDriverCall && row.op < kFirstNvmlCall;
  bool waits = row.kind == CallClass::kSync || row.kind == CallClass::kCached;
  bool ends = contains(row.name, "Destroy") || contains(row.name, "Unload") || contains(row.name, "Free");
  info.needs_context = driver && !waits && !ends;
  info.sets_attribute = driver && contains(row.name, "Set") && !contains(row.name, "Memset");
  info.records_event = contains(row.name, "EventRecord");
  return info;
}

const std::array<CallInfo, kOpsMax>& table() {
  static const auto* all = [] {
    auto* made = new std::array<CallInfo, kOpsMax>;
    for (const Row& row : kRows)
      if (row.op < kOpsMax) (*made)[row.op] = describe(row);
    for (size_t op = 0; op < kOpsMax; ++op) (*made)[op].op = Op(op);
    return made;
  }();
  return *all;
}

}  // namespace

const CallInfo& call_info(Op op) { return table()[op < kOpsMax ? op : 0]; }

}  // namespace umsh
