// Occupancy of clusters: CUlaunchConfig is put together again from its parts.
#include "generated/serve.h"
#include "server/session.h"
#include "wire/attributes.h"

namespace umsh {

namespace {

int answer(Session& s, int (*ask)(int*, void*, const void*), Reader& in, Writer& out) {
  uint64_t function_id = in.u64(), stream_id = in.u64();
  LaunchConfig config{};
  bool there = in.exact(&config, sizeof config);
  Blob attributes = in.blob();
  if (!in.finished() || !there) return kWireError;
  if ((attributes.data ? attributes.nbytes : 0) != config.attribute_count * kAttributeBytes) return kWireError;
  int error = 0;
  std::vector<char> copy(attributes.data, attributes.data + (attributes.data ? attributes.nbytes : 0));
  for (size_t at = 0; at < copy.size() && !error; at += kAttributeBytes) {
    int id;
    std::memcpy(&id, copy.data() + at, sizeof id);
    error = id > 16 ? 801 : refuse_launch_attribute(id);
  }
  void* function = s.lookup(kKindFunction, function_id, &error);
  config.stream = s.lookup(kKindStream, stream_id, &error);
  config.attributes = copy.empty() ? nullptr : copy.data();
  if (error) return error;
  int value = 0;
  int status = invoke(ask, 801, &value, function, &config);
  if (status == 0) out_scalar(out, value);
  return status;
}

}  // namespace

int serve_cuOccupancyMaxPotentialClusterSize(Session& s, Reader& in, Writer& out) {
  return answer(s, s.driver.cuOccupancyMaxPotentialClusterSize, in, out);
}
int serve_cuOccupancyMaxActiveClusters(Session& s, Reader& in, Writer& out) {
  return answer(s, s.driver.cuOccupancyMaxActiveClusters, in, out);
}

}  // namespace umsh
