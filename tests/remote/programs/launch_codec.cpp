// Launches through encoder and decoder: what arrives is what was sent, deltas are small, and no payload breaks a decoder.
#include <cstdlib>
#include <random>

#include "../../native/check.h"
#include "wire/launch.h"

using namespace umsh;

namespace {

std::mt19937_64 dice(7);
uint64_t roll(uint64_t n) { return dice() % n; }

void fill(LaunchRecord& record, uint32_t attributes, uint32_t parameters) {
  LaunchHead head{{1, 2, 3}, {4, 5, 6}, 7, LaunchKind(roll(3)), roll(4), attributes * 72, parameters};
  record.reset(head);
  for (uint32_t i = 0; i < attributes * 72; ++i) record.attributes()[i] = char(roll(256));
  for (uint32_t i = 0; i < parameters; ++i) record.parameters()[i] = char(roll(256));
}

bool same(const LaunchRecord& a, const LaunchRecord& b) { return a.words() == b.words(); }

// One launch over the wire; gives the bytes it took.
size_t pass(LaunchHistory& from, LaunchHistory& to, uint64_t function, const LaunchRecord& record, bool delta) {
  Writer out;
  encode_launch(from, function, record, delta, out);
  Reader in(out.data(), out.size());
  LaunchRecord arrived;
  uint64_t named = 0;
  bool ok = decode_launch(to, in, named, arrived);
  CHECK(ok && named == function && same(record, arrived));
  return out.size();
}

void round_trips() {
  LaunchHistory from, to;
  std::vector<LaunchRecord> last(40);
  for (int i = 0; i < 20000; ++i) {
    size_t function = roll(last.size());
    LaunchRecord& record = last[function];
    if (record.words().empty() || roll(20) == 0) fill(record, uint32_t(roll(3)), uint32_t(roll(10) ? roll(600) : roll(kParametersMax)));
    for (uint64_t n = roll(5); n > 0 && record.head().parameters_nbytes; --n)
      record.parameters()[roll(record.head().parameters_nbytes)] = char(roll(256));
    pass(from, to, 1000 + function, record, roll(50) != 0);
  }
}

void sizes() {
  LaunchHistory from, to;
  LaunchRecord record;
  fill(record, 0, 800);
  CHECK(pass(from, to, 1, record, true) > 800);
  CHECK(pass(from, to, 1, record, true) == 16);       // the same again: the function and the form
  record.parameters()[400] = char(record.parameters()[400] + 1);
  CHECK(pass(from, to, 1, record, true) == 16 + 3);   // one byte: how far, which, what
  for (int i = 0; i < 15; ++i) {                      // sixteen launches that take turns are all remembered
    record.parameters()[i * 40] = char(record.parameters()[i * 40] + 1);
    pass(from, to, 1, record, true);
  }
  CHECK(pass(from, to, 1, record, true) == 16);
  CHECK(pass(from, to, 1, record, false) > 800);
}

void full_history() {
  LaunchHistory from, to;
  LaunchRecord record;
  for (uint64_t function = 1; function < 400; ++function)
    for (unsigned i = 0; i < kHistory; ++i) {
      fill(record, 0, kParametersMax);
      pass(from, to, function, record, true);
    }
  CHECK(from.full() && to.full());
  for (int i = 0; i < 10; ++i) pass(from, to, 10000, record, true);
}

// Payloads with bytes changed, cut and made up: refused or taken, never a read or write outside.
void hostile() {
  for (int round = 0; round < 300; ++round) {
    LaunchHistory from, to;
    LaunchRecord record;
    fill(record, uint32_t(roll(2)), uint32_t(roll(200)));
    for (int i = 0; i < 40; ++i) {
      if (record.head().parameters_nbytes) record.parameters()[roll(record.head().parameters_nbytes)] = char(roll(256));
      Writer out;
      encode_launch(from, 1 + roll(2), record, true, out);
      std::vector<char> bytes(out.data(), out.data() + out.size());
      if (roll(4) == 0) bytes.resize(roll(bytes.size() + 1));
      for (uint64_t n = roll(4); n > 0 && !bytes.empty(); --n) bytes[roll(bytes.size())] = char(roll(256));
      Reader in(bytes.data(), bytes.size());
      LaunchRecord arrived;
      uint64_t function;
      if (decode_launch(to, in, function, arrived)) CHECK(arrived.consistent());
    }
  }
}

}  // namespace

int main() {
  round_trips();
  sizes();
  full_history();
  hostile();
  return finish();
}
