// Occupancy of clusters: the launch that is asked about travels as its configuration and its attributes.
#include <cstring>

#include "call.h"
#include "results.h"
#include "wire/launch.h"

using namespace umsh;

namespace {

int ask(Op op, int* out, void* function, const LaunchConfig* config) {
  bool bad = !out || !config || config->attribute_count * kAttributeBytes > kAttributesMax || (config->attribute_count && !config->attributes);
  if (bad) return kInvalidValue;
  LaunchConfig plain = *config;
  plain.attributes = nullptr;
  Call call(op);
  call.handle(kKindFunction, function).handle(kKindStream, config->stream).blob(&plain, sizeof plain);
  Reply reply = call.blob(config->attributes, config->attribute_count * kAttributeBytes).reply();
  if (reply.result != kSuccess) return reply.result;
  return reply.u64(out, sizeof *out) ? kSuccess : int(kDeviceUnavailable);
}

}  // namespace

UMSH_EXPORT int cuOccupancyMaxPotentialClusterSize(int* out, void* function, const LaunchConfig* config) {
  return ask(kOp_cuOccupancyMaxPotentialClusterSize, out, function, config);
}
UMSH_EXPORT int cuOccupancyMaxActiveClusters(int* out, void* function, const LaunchConfig* config) {
  return ask(kOp_cuOccupancyMaxActiveClusters, out, function, config);
}
