// Every generated call, encoded by the client's half and decoded by the server's, in memory: arguments arrive and outputs
// return; then the same requests and replies, damaged. Arguments: rounds, seed.
#include "roundtrip.h"

#include <algorithm>

#include "generated/serve.h"

namespace umsh {

// The client's Call without a network: the server's function runs at once.
struct CallSlot {
  Writer writer;
};

namespace {

constexpr size_t kOps = 0x1000;
std::vector<std::vector<char>> requests(kOps);
bool damage_replies = false;

void damage(std::vector<char>& bytes) {
  using roundtrip::below;
  switch (below(4)) {
    case 0: bytes.resize(below(bytes.size() + 1)); break;
    case 1: bytes.resize(bytes.size() + 8 * below(4)); break;
    default:
      for (uint64_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
        size_t at = below(bytes.size());
        if (roundtrip::chance(2)) {
          bytes[at] = char(roundtrip::random_bits());
        } else {
          uint64_t word = roundtrip::any<uint64_t>() >> (8 * below(8));
          std::memcpy(bytes.data() + at / 8 * 8, &word, std::min<size_t>(8, bytes.size() - at / 8 * 8));
        }
      }
  }
}

// Runs from a copy of exactly this size, so that a checker sees reads past the end.
int serve(Op op, const std::vector<char>& request, Writer& out) {
  const ServeEntry* entry = serve_entry(op);
  if (!entry) return -2;
  std::vector<char> exact(request.begin(), request.end());
  Reader in(exact.data(), exact.size());
  return entry->serve(roundtrip::session, in, out);
}

}  // namespace

const CallInfo& call_info(Op op) {
  static CallInfo info;
  info.op = op;
  return info;
}
void say_unsupported(const char*) {}
Call::Call(Op op) : info_(call_info(op)), slot_(new CallSlot) {}
Call::~Call() { delete slot_; }
Call& Call::u64(uint64_t value) { return slot_->writer.u64(value), *this; }
Call& Call::device(uint64_t value) { return slot_->writer.u64(value), *this; }
Call& Call::handle(Kind, const void* value) { return u64(reinterpret_cast<uint64_t>(value)); }
Call& Call::blob(const void* data, uint64_t nbytes) { return slot_->writer.blob(data, nbytes), *this; }
Call& Call::text(const char* s) { return slot_->writer.text(s), *this; }
Call& Call::bits(const void* value, size_t nbytes) {
  uint64_t word = 0;
  std::memcpy(&word, value, nbytes);
  return u64(word);
}
uint64_t Call::make(Kind) {
  static uint64_t next = uint64_t{1} << 40;
  u64(++next);
  return next;
}
int Call::status() { return reply().result; }
int Call::wait() { return reply().result; }
Reply Call::reply() {
  Reply reply;
  std::vector<char> request(slot_->writer.data(), slot_->writer.data() + slot_->writer.size());
  requests[info_.op] = request;
  Writer out;
  reply.result = serve(info_.op, request, out);
  reply.payload_.assign(out.data(), out.data() + out.size());
  if (damage_replies) damage(reply.payload_);
  reply.payload_.shrink_to_fit();
  reply.reader_ = Reader(reply.payload_.data(), reply.payload_.size());
  return reply;
}

}  // namespace umsh

namespace roundtrip {

std::mt19937_64 random_bits;
Session session;
std::function<int(const uint64_t*)> on_call;
bool lenient = false;
const char* current = "?";

void fail(const char* what) {
  std::printf("%s: %s\n", current, what);
  std::exit(1);
}

const std::vector<Test>& all_tests();
void install_all(Session& session);

namespace {

unsigned damaged_requests(const Test& test, unsigned rounds) {
  unsigned refused = 0;
  const std::vector<char> request = requests[test.op];
  for (unsigned round = 0; round < rounds; ++round) {
    std::vector<char> bytes = request;
    damage(bytes);
    Writer out;
    refused += serve(test.op, bytes, out) == kWireError;
  }
  return refused;
}

}  // namespace

}  // namespace roundtrip

int main(int argc, char** argv) {
  using namespace roundtrip;
  unsigned rounds = argc > 1 ? unsigned(std::atoi(argv[1])) : 20;
  random_bits.seed(argc > 2 ? uint64_t(std::atoll(argv[2])) : 1);
  install_all(session);
  unsigned long served = 0, refused = 0;
  for (const Test& test : all_tests()) {
    current = test.name;
    for (unsigned round = 0; round < rounds; ++round) test.run();
    served += umsh::serve_entry(test.op) != nullptr;
    lenient = true;
    damage_replies = true;
    for (unsigned round = 0; round < rounds; ++round) test.run();
    damage_replies = false;
    on_call = nullptr;
    refused += damaged_requests(test, rounds);
    lenient = false;
    session.real.clear();
  }
  std::printf("%zu calls, %u rounds, %lu damaged requests refused\n", all_tests().size(), rounds, refused);
  return served == all_tests().size() ? 0 : 2;
}
