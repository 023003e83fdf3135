// How each call travels: the class of every operation, as the tables say.
#pragma once

#include <cstdint>

#include "../wire/ops.h"

namespace umsh {

enum class CallClass : uint8_t {
  kLocal,     // answered on the client
  kCached,    // the first answer holds for the session
  kAsync,     // sent without waiting; its error comes with a later reply
  kPrefetch,  // makes an object; made ahead of time in the mode that measures this
  kSync,      // waits for its reply
};

enum CallFlags : uint8_t {
  kCallBlocking = 1,    // may wait for the device on the server
  kCallStatusOnly = 2,  // has no outputs
  kCallCustom = 4,      // written by hand on the client
};

struct CallInfo {
  Op op = 0;
  const char* name = "?";
  CallClass kind = CallClass::kSync;
  uint8_t flags = 0;
  // Derived from the name. Objects may be destroyed by a thread without a context, as with the driver itself.
  bool needs_context = false;
  bool sets_attribute = false;
  bool records_event = false;
};

const CallInfo& call_info(Op op);  // an unknown operation is "?", synchronous

}  // namespace umsh
