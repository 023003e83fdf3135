// Modules of the software device: a text image declares kernels by behaviour and parameter sizes.
//
//   umsh-software-module 1
//   kernel NAME BEHAVIOUR SIZE,SIZE,...      parameters are laid out like C's: each aligned to its size, at most 8
//   global NAME NBYTES
//
// Behaviours: none; dump (all parameter bytes go where parameter 0 points); dims (grid, block, shared bytes and the
// number of attributes, as 8 words); fill (ptr, u32 value, u64 n); add (a, b, out, u64 n: floats); copy (dst, src,
// u64 nbytes); increment (ptr to u64); spin (u64 nanoseconds); fault.
#include <cstring>
#include <sstream>

#include "device.h"

namespace software {

namespace {

constexpr char kTitle[] = "umsh-software-module 1";
constexpr size_t kImageMax = size_t{1} << 20;

template <class T>
T parameter(const Launch& launch, const Function& function, size_t index) {
  T value{};
  if (index < function.parameters.size())
    std::memcpy(&value, launch.parameters.data() + function.parameters[index].offset,
                std::min(sizeof value, function.parameters[index].nbytes));
  return value;
}

void* pointer(uint64_t address, size_t nbytes, Context* context) {
  if (device_range(address, nbytes)) return reinterpret_cast<void*>(address);
  context->sticky = kIllegalAddress;
  return nullptr;
}

void dump(const Function& f, const Launch& launch, Context* context) {
  auto to = parameter<uint64_t>(launch, f, 0);
  if (void* out = pointer(to, launch.parameters.size(), context))
    std::memcpy(out, launch.parameters.data(), launch.parameters.size());
}

void dims(const Function& f, const Launch& launch, Context* context) {
  auto* out = static_cast<unsigned*>(pointer(parameter<uint64_t>(launch, f, 0), 32, context));
  if (!out) return;
  std::memcpy(out, launch.grid, 12);
  std::memcpy(out + 3, launch.block, 12);
  out[6] = launch.shared;
  out[7] = launch.attributes;
}

void fill(const Function& f, const Launch& launch, Context* context) {
  auto n = parameter<uint64_t>(launch, f, 2);
  auto value = parameter<uint32_t>(launch, f, 1);
  auto* out = static_cast<uint32_t*>(pointer(parameter<uint64_t>(launch, f, 0), n * 4, context));
  for (uint64_t i = 0; out && i < n; ++i) out[i] = value;
}

void add(const Function& f, const Launch& launch, Context* context) {
  auto n = parameter<uint64_t>(launch, f, 3);
  auto* a = static_cast<float*>(pointer(parameter<uint64_t>(launch, f, 0), n * 4, context));
  auto* b = static_cast<float*>(pointer(parameter<uint64_t>(launch, f, 1), n * 4, context));
  auto* out = static_cast<float*>(pointer(parameter<uint64_t>(launch, f, 2), n * 4, context));
  for (uint64_t i = 0; a && b && out && i < n; ++i) out[i] = a[i] + b[i];
}

void copy(const Function& f, const Launch& launch, Context* context) {
  auto n = parameter<uint64_t>(launch, f, 2);
  void* to = pointer(parameter<uint64_t>(launch, f, 0), n, context);
  void* from = pointer(parameter<uint64_t>(launch, f, 1), n, context);
  if (to && from) std::memmove(to, from, n);
}

void increment(const Function& f, const Launch& launch, Context* context) {
  if (auto* word = static_cast<uint64_t*>(pointer(parameter<uint64_t>(launch, f, 0), 8, context))) ++*word;
}

void spin(const Function& f, const Launch& launch, Context*) {
  uint64_t end = now_ns() + parameter<uint64_t>(launch, f, 0);
  while (now_ns() < end) {}
}

void fault(const Function&, const Launch&, Context* context) { context->sticky = kIllegalAddress; }
void none(const Function&, const Launch&, Context*) {}

using Behaviour = void (*)(const Function&, const Launch&, Context*);
const std::map<std::string, Behaviour>& behaviours() {
  static const auto* all = new std::map<std::string, Behaviour>{
      {"none", none}, {"dump", dump}, {"dims", dims}, {"fill", fill}, {"add", add},
      {"copy", copy}, {"increment", increment}, {"spin", spin}, {"fault", fault}};
  return *all;
}

// The text inside a fat binary container: its first entry that holds a module of ours.
std::string from_fatbin(const char* at) {
  uint64_t left;
  uint16_t header;
  std::memcpy(&header, at + 6, 2);
  std::memcpy(&left, at + 8, 8);
  at += header;
  while (left >= 64 && left <= kImageMax) {
    uint32_t entry_header;
    uint64_t nbytes;
    std::memcpy(&entry_header, at + 4, 4);
    std::memcpy(&nbytes, at + 8, 8);
    if (entry_header + nbytes > left) break;
    std::string text(at + entry_header, nbytes);
    if (text.compare(0, sizeof kTitle - 1, kTitle) == 0) return text.c_str();
    at += entry_header + nbytes;
    left -= entry_header + nbytes;
  }
  return {};
}

bool parse_kernel(std::istringstream& line, Module& module) {
  auto function = std::make_unique<Function>();
  std::string sizes;
  if (!(line >> function->name >> function->behaviour) || !behaviours().count(function->behaviour)) return false;
  line >> sizes;
  std::istringstream list(sizes);
  size_t offset = 0;
  for (std::string item; std::getline(list, item, ',');) {
    size_t nbytes = std::strtoul(item.c_str(), nullptr, 10), align = 1;
    if (nbytes == 0 || nbytes > 4096) return false;
    while (align < 8 && nbytes % (align * 2) == 0) align *= 2;
    offset = (offset + align - 1) & ~(align - 1);
    function->parameters.push_back({offset, nbytes});
    offset += nbytes;
  }
  module.functions[function->name] = std::move(function);
  return true;
}

}  // namespace

Module::~Module() {
  for (auto& global : globals) release(global.second.first);
}

int load_image(const void* image, std::unique_ptr<Module>& out) {
  const char* bytes = static_cast<const char*>(image);
  uint32_t magic;
  std::memcpy(&magic, bytes, 4);
  std::string text = magic == 0xBA55ED50u ? from_fatbin(bytes) : std::string(bytes, strnlen(bytes, kImageMax));
  if (magic == 0xBA55ED50u && text.empty()) return kNoBinary;
  if (text.compare(0, 4, "\177ELF") == 0) return kNoBinary;
  if (text.compare(0, sizeof kTitle - 1, kTitle) != 0) return text.find(".version") != std::string::npos ? kInvalidPtx : kInvalidImage;
  auto module = std::make_unique<Module>();
  std::istringstream lines(text);
  std::string line, word;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    if (!(words >> word)) continue;
    if (word == "kernel" && parse_kernel(words, *module)) continue;
    std::string name;
    size_t nbytes = 0;
    int error = kSuccess;
    if (word != "global" || !(words >> name >> nbytes) || nbytes == 0) return kInvalidImage;
    uint64_t at = allocate(nbytes, &error);
    if (error) return error;
    std::memset(reinterpret_cast<void*>(at), 0, nbytes);
    module->globals[name] = {at, nbytes};
  }
  out = std::move(module);
  return kSuccess;
}

int gather(const Function& function, void** params, void** extra, std::vector<char>& out) {
  out.assign(function.nbytes(), 0);
  if (params) {
    for (size_t i = 0; i < function.parameters.size(); ++i)
      std::memcpy(out.data() + function.parameters[i].offset, params[i], function.parameters[i].nbytes);
    return kSuccess;
  }
  const void* buffer = nullptr;
  size_t nbytes = 0;
  for (; extra && extra[0]; extra += 2) {
    auto key = reinterpret_cast<uintptr_t>(extra[0]);
    if (key == 1) buffer = extra[1];
    if (key == 2) nbytes = *static_cast<size_t*>(extra[1]);
  }
  if (out.empty()) return kSuccess;
  if (!buffer || nbytes != out.size()) return kInvalidValue;
  std::memcpy(out.data(), buffer, nbytes);
  return kSuccess;
}

void execute(const Function& function, const Launch& launch, Context* context) {
  behaviours().at(function.behaviour)(function, launch, context);
}

}  // namespace software
