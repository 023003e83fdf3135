#include "image.h"

#include <cstring>
#include <elf.h>

#include "results.h"

namespace umsh {

namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1, kFatbinMagic = 0xBA55ED50;

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* rest;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_nbytes;
  uint64_t nbytes;  // of the entries
};

// Start of an entry; what follows up to header_nbytes is not needed here.
struct FatbinEntry {
  uint16_t kind, version;
  uint32_t header_nbytes;
  uint64_t nbytes;  // of the padded code
  uint32_t compressed_nbytes, options_offset;
  uint16_t minor, major;
  uint32_t architecture;  // 90 for compute capability 9.0
};
static_assert(sizeof(FatbinEntry) == 32, "as the compiler lays it out");
constexpr uint16_t kKindPtx = 1, kKindElf = 2;

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool add(uint64_t a, uint64_t b, uint64_t& out) { return !__builtin_add_overflow(a, b, &out) && out <= kImageMax; }

// Last byte that a header, a section or a segment names.
int measure_elf(const char* data, Image& out) {
  auto header = load<Elf64_Ehdr>(data);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) return kInvalidImage;
  uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  uint64_t segments = uint64_t{header.e_phnum} * header.e_phentsize;
  uint64_t end = sizeof header, at;
  auto extend = [&](uint64_t start, uint64_t nbytes) {
    if (!add(start, nbytes, at)) return false;
    if (at > end) end = at;
    return true;
  };
  bool sized = (header.e_shnum == 0 || header.e_shentsize == sizeof(Elf64_Shdr)) &&
               (header.e_phnum == 0 || header.e_phentsize == sizeof(Elf64_Phdr));
  if (!sized || !extend(header.e_shoff, sections) || !extend(header.e_phoff, segments)) return kInvalidImage;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    auto section = load<Elf64_Shdr>(data + header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && !extend(section.sh_offset, section.sh_size)) return kInvalidImage;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    auto segment = load<Elf64_Phdr>(data + header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!extend(segment.p_offset, segment.p_filesz)) return kInvalidImage;
  }
  out.data = data;
  out.nbytes = end;
  return kSuccess;
}

int measure_fatbin(const char* data, Image& out) {
  auto header = load<FatbinHeader>(data);
  uint64_t nbytes;
  if (header.header_nbytes < sizeof header || !add(header.header_nbytes, header.nbytes, nbytes)) return kInvalidImage;
  out.data = data;
  out.nbytes = nbytes;
  return kSuccess;
}

int measure_text(const char* data, Image& out) {
  size_t nbytes = strnlen(data, kImageMax);
  // PTX is text: a first character that is none means a kind of image that nobody here knows.
  auto first = static_cast<unsigned char>(data[0]);
  bool text = first >= 0x20 || first == '\n' || first == '\t' || first == '\r';
  if (nbytes == 0 || nbytes == kImageMax || !text || first >= 0x80) return kInvalidImage;
  out.data = data;
  out.nbytes = nbytes + 1;  // the driver reads up to the final NUL
  return kSuccess;
}

struct Entry {
  size_t at, nbytes;
  FatbinEntry head;
};

bool read_entries(const Image& image, std::vector<Entry>& out) {
  auto header = load<FatbinHeader>(image.data);
  size_t at = header.header_nbytes;
  while (at < image.nbytes) {
    if (image.nbytes - at < sizeof(FatbinEntry)) return false;
    auto head = load<FatbinEntry>(image.data + at);
    uint64_t nbytes;
    if (head.header_nbytes < sizeof head || !add(head.header_nbytes, head.nbytes, nbytes)) return false;
    if (nbytes > image.nbytes - at) return false;
    out.push_back({at, nbytes, head});
    at += nbytes;
  }
  return true;
}

// Code for the same major and no later minor runs; any other does not.
bool usable(const FatbinEntry& head, int major, int minor) {
  int architecture = int(head.architecture);
  return architecture / 10 == major && architecture % 10 <= minor;
}

}  // namespace

int measure_image(const void* image, Image& out) {
  if (!image) return kInvalidValue;
  auto* data = static_cast<const char*>(image);
  if (load<uint32_t>(data) == kWrapperMagic) {
    data = static_cast<const char*>(load<Wrapper>(data).data);
    if (!data) return kInvalidImage;
  }
  uint32_t magic = load<uint32_t>(data);
  if (magic == kFatbinMagic) return measure_fatbin(data, out);
  if (std::memcmp(data, ELFMAG, SELFMAG) == 0) return measure_elf(data, out);
  return measure_text(data, out);
}

void trim_image(Image& image, int major, int minor) {
  std::vector<Entry> entries;
  if (image.nbytes < sizeof(FatbinHeader) || load<uint32_t>(image.data) != kFatbinMagic) return;
  if (!read_entries(image, entries)) return;
  bool native = false;
  for (const Entry& entry : entries) native = native || (entry.head.kind == kKindElf && usable(entry.head, major, minor));
  if (!native) return;  // the driver compiles one of the PTX texts; which, it knows better
  std::vector<char> kept(image.data, image.data + load<FatbinHeader>(image.data).header_nbytes);
  for (const Entry& entry : entries) {
    bool other = entry.head.kind == kKindElf && !usable(entry.head, major, minor);
    if (other || entry.head.kind == kKindPtx) continue;
    kept.insert(kept.end(), image.data + entry.at, image.data + entry.at + entry.nbytes);
  }
  if (kept.size() >= image.nbytes) return;
  uint64_t nbytes = kept.size() - load<FatbinHeader>(kept.data()).header_nbytes;
  std::memcpy(kept.data() + offsetof(FatbinHeader, nbytes), &nbytes, sizeof nbytes);
  image.trimmed = std::move(kept);
  image.data = image.trimmed.data();
  image.nbytes = image.trimmed.size();
}

}  // namespace umsh
