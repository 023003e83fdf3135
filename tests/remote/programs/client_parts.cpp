// Parts of the client that need no server: module images, address ranges, known memory, progress, settings.
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <string>
#include <vector>

#include "../../native/check.h"
#include "client/image.h"
#include "client/memory.h"
#include "client/progress.h"
#include "client/settings.h"

using namespace umsh;

namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_entry(std::string& out, uint16_t kind, uint32_t architecture, const std::string& code) {
  put<uint16_t>(out, kind);
  put<uint16_t>(out, 0x101);
  put<uint32_t>(out, 64);
  put<uint64_t>(out, code.size());
  put<uint64_t>(out, 0);
  put<uint32_t>(out, 0);
  put<uint32_t>(out, architecture);
  out.append(32, '\0');
  out += code;
}

std::string fatbin(const std::string& entries) {
  std::string out;
  put<uint32_t>(out, 0xBA55ED50);
  put<uint16_t>(out, 1);
  put<uint16_t>(out, 16);
  put<uint64_t>(out, entries.size());
  return out + entries;
}

void fatbins() {
  std::string entries;
  add_entry(entries, 2, 80, "code for 8.0");
  add_entry(entries, 2, 90, "code for 9.0");
  add_entry(entries, 1, 90, "text for 9.0");
  std::string whole = fatbin(entries) + "not part of it";
  Image image;
  CHECK(measure_image(whole.data(), image) == 0 && image.nbytes == 16 + entries.size());
  trim_image(image, 9, 0);
  std::string kept;
  add_entry(kept, 2, 90, "code for 9.0");
  CHECK(std::string(image.data, image.nbytes) == fatbin(kept));
  // Nothing ready for 10.0: the driver compiles a text, and chooses from all of it.
  Image other;
  CHECK(measure_image(whole.data(), other) == 0);
  trim_image(other, 10, 0);
  CHECK(other.nbytes == 16 + entries.size());
  // The compiler's wrapper leads to the same bytes.
  struct { uint32_t magic, version; const void* data; const void* rest; } wrapper{0x466243B1, 1, whole.data(), nullptr};
  Image wrapped;
  CHECK(measure_image(&wrapper, wrapped) == 0 && wrapped.nbytes == 16 + entries.size());
  // Entries that run past the end leave it whole; a length past the limit is no image.
  std::string broken = fatbin(entries);
  broken[16 + 8] = char(0xFF);
  Image kept_whole;
  CHECK(measure_image(broken.data(), kept_whole) == 0);
  trim_image(kept_whole, 9, 0);
  CHECK(kept_whole.nbytes == broken.size());
  std::memset(&broken[8], 0xFF, 8);
  CHECK(measure_image(broken.data(), kept_whole) == 200);
}

void elves() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = sizeof header;
  header.e_shnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = 500;
  section.sh_size = 77;
  std::vector<char> bytes(600);
  auto write = [&] {
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &section, sizeof section);
  };
  Image image;
  write();
  CHECK(measure_image(bytes.data(), image) == 0 && image.nbytes == 577);
  section.sh_size = ~uint64_t{0} - 100;
  write();
  CHECK(measure_image(bytes.data(), image) == 200);
  header.e_shentsize = 1;
  write();
  CHECK(measure_image(bytes.data(), image) == 200);
  header.e_ident[EI_CLASS] = ELFCLASS32;
  write();
  CHECK(measure_image(bytes.data(), image) == 200);
}

void texts() {
  Image image;
  CHECK(measure_image("// ptx\n.version 8.0\n", image) == 0 && image.nbytes == 21);
  CHECK(measure_image("\1\2\3\4", image) == 200 && measure_image("\0\0\0\0", image) == 200);
  CHECK(measure_image(nullptr, image) == 1);
}

void ranges() {
  Ranges ranges;
  ranges.reset(uint64_t{1} << 40, 8 * Ranges::kStep);
  uint64_t a = ranges.take(1), b = ranges.take(Ranges::kStep + 1), c = ranges.take(5 * Ranges::kStep);
  CHECK(a == uint64_t{1} << 40 && b == a + Ranges::kStep && c == b + 2 * Ranges::kStep);
  CHECK(ranges.take(1) == 0);
  ranges.give(a, 1);
  ranges.give(c, 5 * Ranges::kStep);
  ranges.give(b, Ranges::kStep + 1);
  CHECK(ranges.take(8 * Ranges::kStep) == a);
}

void known_memory() {
  Memory memory;
  Block block, found;
  block.address = 1000;
  block.nbytes = 100;
  block.device = 1 << 20;
  block.kind = MemoryKind::kRegistered;
  memory.add(block);
  CHECK(memory.find(1099, &found) && !memory.find(1100, &found) && !memory.find(999, &found));
  CHECK(memory.find_device((1 << 20) + 99, &found) && found.address == 1000 && !memory.find_device(1050, &found));
  CHECK(memory.overlaps(900, 101) && !memory.overlaps(900, 100) && !memory.overlaps(1100, 5) && memory.overlaps(1050, 1));
  CHECK(memory.remove(1000) && !memory.remove(1000) && !memory.find_device(1 << 20, &found));
}

void progress() {
  static Progress p;
  uint64_t stream = make_handle(1, 2000), event = make_handle(2, 2001);
  CHECK(!p.stream_done(stream) && !p.event_done(event));
  p.worked(stream, 10);
  p.recorded(event, stream, 11);
  p.waited(stream, 10);
  CHECK(p.stream_done(stream) && !p.event_done(event));
  p.waited(stream, 12);
  CHECK(p.event_done(event));
  p.worked(stream, 13);
  CHECK(!p.stream_done(stream) && p.event_done(event));
  uint64_t colliding = make_handle(1, 2000 + 4096);
  p.waited(colliding, 99);
  CHECK(!p.stream_done(stream));
  p.waited_all(14);
  CHECK(p.stream_done(stream));
}

void settings() {
  setenv("UMSH_REMOTE_MODE", "sr", 1);
  setenv("UMSH_REMOTE_SWITCHES", "+elide,-async", 1);
  Settings s = read_settings();
  CHECK(s.error.empty() && s.switches.shadow && s.switches.elide && !s.switches.async && !s.switches.delta);
  setenv("UMSH_REMOTE_SWITCHES", "elide", 1);
  CHECK(!read_settings().error.empty());
}

}  // namespace

int main() {
  fatbins();
  elves();
  texts();
  ranges();
  known_memory();
  progress();
  settings();
  return finish();
}
