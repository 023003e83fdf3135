// The end of linking: its result travels as bytes.
#include "generated/serve.h"
#include "server/session.h"

namespace umsh {

int serve_cuLinkComplete(Session& s, Reader& in, Writer& out) {
  uint64_t handle = in.u64();
  if (!in.finished()) return kWireError;
  int error = 0;
  void* state = s.lookup(kKindLinkState, handle, &error);
  if (error) return error;
  void* data = nullptr;
  size_t nbytes = 0;
  int status = invoke(s.driver.cuLinkComplete, 801, state, &data, &nbytes);
  if (status != 0) return status;
  if (nbytes > kArrayMax) return 2;  // out of memory: larger than a reply can be
  out.blob(data, nbytes);
  return 0;
}

}  // namespace umsh
