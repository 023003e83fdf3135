// Device properties and the driver's entry points.
#include <cstring>
#include <iterator>

#include "cudart/runtime.h"

using namespace umsh::cudart;

namespace {

constexpr size_t kPropertiesBytes = 1008;  // cudaDeviceProp of CUDA 13

struct Field {
  unsigned short offset, attribute;
  bool wide;  // a size_t
};

// Where cudaDeviceProp has the driver's device attribute of that number.
constexpr Field kFields[] = {
    {296, 8, true},    {304, 12, false},  {308, 10, false},  {312, 11, true},   {320, 1, false},   {324, 2, false},
    {328, 3, false},   {332, 4, false},   {336, 5, false},   {340, 6, false},   {344, 7, false},   {352, 9, true},
    {360, 75, false},  {364, 76, false},  {368, 14, true},   {376, 51, true},   {384, 16, false},  {388, 18, false},
    {392, 19, false},  {396, 21, false},  {400, 77, false},  {404, 22, false},  {408, 23, false},  {412, 73, false},
    {416, 74, false},  {420, 70, false},  {424, 71, false},  {428, 72, false},  {432, 45, false},  {436, 46, false},
    {440, 24, false},  {444, 25, false},  {448, 26, false},  {452, 47, false},  {456, 48, false},  {460, 49, false},
    {464, 52, false},  {468, 42, false},  {472, 43, false},  {476, 27, false},  {480, 28, false},  {484, 29, false},
    {488, 53, false},  {492, 54, false},  {496, 55, false},  {500, 56, false},  {504, 57, false},  {508, 58, false},
    {512, 59, false},  {516, 60, false},  {520, 61, false},  {524, 62, false},  {528, 63, false},  {532, 64, false},
    {536, 65, false},  {540, 66, false},  {544, 67, false},  {548, 68, false},  {552, 30, true},   {560, 31, false},
    {564, 32, false},  {568, 33, false},  {572, 34, false},  {576, 50, false},  {580, 35, false},  {584, 40, false},
    {588, 41, false},  {592, 37, false},  {596, 38, false},  {600, 108, false}, {604, 39, false},  {608, 78, false},
    {612, 79, false},  {616, 80, false},  {624, 81, true},   {632, 82, false},  {636, 83, false},  {640, 84, false},
    {644, 85, false},  {648, 86, false},  {652, 88, false},  {656, 89, false},  {660, 90, false},  {664, 91, false},
    {668, 95, false},  {672, 97, true},   {680, 100, false}, {684, 101, false}, {688, 106, false}, {692, 109, false},
    {696, 111, true},  {704, 99, false},  {708, 112, false}, {712, 113, false}, {716, 114, false}, {720, 115, false},
    {724, 116, false}, {728, 117, false}, {732, 118, false}, {736, 119, false}, {740, 121, false}, {744, 125, false},
    {748, 120, false}, {752, 129, false}, {756, 130, false}, {760, 131, false}, {764, 133, false}, {768, 134, false},
    {776, 140, false}, {780, 143, false},
};

}  // namespace

UMSH_EXPORT int cudaGetDeviceProperties(void* properties, int device) {
  static Symbol attribute{"cuDeviceGetAttribute"}, name{"cuDeviceGetName"}, total{"cuDeviceTotalMem_v2"};
  static Symbol uuid{"cuDeviceGetUuid_v2"};
  char out[kPropertiesBytes] = {};
  size_t nbytes = 0;
  if (!properties) return done(kInvalidValue);
  if (int error = start()) return done(error);
  if (name(out, 256, device)) return done(kInvalidDevice);
  if (int error = total(&nbytes, device)) return done(error);
  std::memcpy(out + 288, &nbytes, sizeof nbytes);
  uuid(out + 256, device);
  for (auto& field : kFields) {
    int value = 0;
    if (attribute(&value, static_cast<int>(field.attribute), device)) continue;  // newer than the driver: 0
    size_t wide = static_cast<size_t>(value);
    std::memcpy(out + field.offset, field.wide ? static_cast<void*>(&wide) : &value, field.wide ? 8 : 4);
  }
  std::memcpy(properties, out, sizeof out);
  return kSuccess;
}

UMSH_EXPORT int cudaChooseDevice(int* device, const void*) {
  if (!device) return done(kInvalidValue);
  *device = 0;
  return kSuccess;
}

UMSH_EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  static Symbol enable{"cuCtxEnablePeerAccess"}, retain{"cuDevicePrimaryCtxRetain"};
  void* other = nullptr;
  if (int error = context()) return done(error);
  int error = retain(&other, peer);
  return done(error ? error : enable(other, flags));
}

UMSH_EXPORT int cudaDeviceDisablePeerAccess(int peer) {
  static Symbol disable{"cuCtxDisablePeerAccess"}, retain{"cuDevicePrimaryCtxRetain"};
  void* other = nullptr;
  if (int error = context()) return done(error);
  int error = retain(&other, peer);
  return done(error ? error : disable(other));
}

UMSH_EXPORT int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, uint64_t flags,
                                                 int* status) {
  static Symbol f{"cuGetProcAddress_v2"};
  int found = 1;
  if (int error = start()) return done(error);
  int error = f(name, function, static_cast<int>(version), flags, &found);
  if (status) *status = found;
  return done(error == kNotFound && status ? kSuccess : error);
}

UMSH_EXPORT int cudaGetDriverEntryPoint(const char* name, void** function, uint64_t flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, kRuntimeVersion, flags, status);
}
