// Frames: the unit of the wire, and every limit that both ends check.
#pragma once

#include <cstddef>
#include <cstdint>

namespace umsh {

// The wire changes incompatibly with kWireMajor and compatibly with kWireMinor; the hello carries both.
constexpr uint16_t kWireMajor = 1;
constexpr uint16_t kWireMinor = 0;

constexpr size_t kPayloadMax = size_t{16} << 20;   // bytes in one frame; longer data travels in pieces
constexpr size_t kPieceBytes = size_t{4} << 20;    // bytes of one piece of a long transfer
constexpr size_t kFlushBytes = size_t{32} << 10;   // a send queue this full is written at once
constexpr unsigned kFlushMicros = 75;              // an idle send queue is written after this long
constexpr uint64_t kWindowFrames = 1u << 16;       // unacknowledged frames before a sender waits
constexpr uint64_t kWindowBytes = uint64_t{64} << 20;  // unacknowledged bytes before a sender waits
constexpr uint64_t kAckEveryFrames = 1024;         // the server acknowledges at least this often
constexpr uint64_t kAckEveryBytes = uint64_t{8} << 20;
constexpr unsigned kPingSeconds = 5;               // the server pings a silent client
constexpr unsigned kDeadSeconds = 30;              // no frame for so long: the peer is given up
constexpr unsigned kHandshakeSeconds = 5;          // a hello takes no longer

// 16 bytes, little endian. `nbytes` counts the payload only. Requests are numbered from 1 without gaps; a reply
// repeats the number of its request. Frames that the server sends by itself carry sequence 0.
struct FrameHeader {
  uint32_t nbytes;
  uint16_t op;
  uint16_t flags;
  uint64_t sequence;
};
static_assert(sizeof(FrameHeader) == 16, "a frame header has no padding");

enum FrameFlags : uint16_t {
  kWantsReply = 1,  // the sender waits: the receiver answers even on success
  kIsReply = 2,
};

// Every reply starts with this; the outputs of the call follow.
struct ReplyHeader {
  int32_t result;             // what the call returned on the server
  int32_t deferred_result;    // first failure of a call without reply since the last reply, or 0
  uint64_t deferred_sequence; // the number of that call
  uint64_t executed;          // every request up to this number has been taken up
};
static_assert(sizeof(ReplyHeader) == 24, "a reply header has no padding");

// Hello, in four fixed-size messages: ClientHello, ServerHello, Proof, Welcome. Text is UTF-8, cut, NUL-padded.
constexpr char kMagic[8] = {'U', 'M', 'S', 'H', 'C', 'A', 'L', 'L'};

enum class HelloKind : uint32_t { kSession = 1, kStatus = 2 };

struct ClientHello {
  char magic[8];
  uint16_t wire_major, wire_minor;
  uint32_t kind;          // HelloKind
  uint8_t tables[32];     // SHA-256 of the call tables this end was generated from
  uint8_t nonce[32];
  uint64_t pid;
  char program[64];
  char version[16];       // umsh's version, for messages
};
static_assert(sizeof(ClientHello) == 168, "ClientHello has no padding");

enum class HelloStatus : uint32_t {
  kOk = 0, kProveToken = 1, kVersionMismatch = 2, kTablesMismatch = 3, kRefusedToken = 4, kFull = 5, kNoDevice = 6,
  kBadHello = 7, kFailed = 8,
};

struct ServerHello {
  char magic[8];
  uint16_t wire_major, wire_minor;
  uint32_t status;        // HelloStatus: kOk, kProveToken or a refusal
  uint8_t nonce[32];
  char text[208];         // why it was refused and what to do; or the server's version
};
static_assert(sizeof(ServerHello) == 256, "ServerHello has no padding");

struct Proof {            // sent only after kProveToken: HMAC-SHA256(token, client nonce || server nonce)
  uint8_t mac[32];
};

struct Welcome {
  uint32_t status;        // HelloStatus
  uint32_t reserved;
  uint64_t session;       // number of the session in the server's log and status
  char text[240];
};
static_assert(sizeof(Welcome) == 256, "Welcome has no padding");

}  // namespace umsh
