// A server in one thread and without a device, for tests and measurements of the client alone: it answers the hello,
// plays device memory with its own, runs a kernel named dump* by copying its parameters to where the first one points,
// and executes nothing else. Prints the port it listens on, and after each client how many replies it gave; serves
// one client at a time until it is ended.
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <netinet/in.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>

#include "generated/kinds.h"
#include "generated/ops.h"
#include "wire/crypto.h"
#include "wire/frame.h"
#include "wire/handles.h"
#include "wire/launch.h"
#include "wire/snapshot.h"
#include "wire/socket.h"

using namespace umsh;

namespace {

constexpr int kUnknownHandle = 400, kInvalid = 1, kMissing = 500;

struct Function {
  std::string name;
  std::vector<std::pair<uint64_t, uint64_t>> parameters;
};

struct Upload {
  uint64_t dst;
  std::vector<char> data;
};
struct Graph {
  std::vector<uint64_t> uploads;
  std::vector<std::pair<uint64_t, std::pair<uint64_t, uint64_t>>> downloads;  // cookie, source and length
};

class Server {
 public:
  explicit Server(int fd) : fd_(fd) {}
  bool hello(const std::string& token);
  void serve();
  uint64_t replies = 0;

 private:
  int execute(const FrameHeader& frame, Reader& in, Writer& out);
  int memory_call(Op op, Reader& in, Writer& out);
  int module_call(Op op, Reader& in, Writer& out);
  int graph_call(Op op, Reader& in, Writer& out);
  int launch(Reader& in);
  void push(Op op, const Writer& payload);
  void bring(uint64_t cookie, uint64_t src, uint64_t nbytes, bool ok);
  bool inside(uint64_t at, uint64_t n) const {
    return (at >= base_ && n <= bytes_ && at - base_ <= bytes_ - n) || (at >= mirror_ && n <= bytes_ && at - mirror_ <= bytes_ - n);
  }
  void open(Reader& in, Writer& out);

  int fd_;
  uint64_t base_ = 0, mirror_ = 0, bytes_ = 0, next_ = 0, frames_ = 0, waiting_for_ = 0;
  std::unordered_map<uint64_t, Function> functions_;
  std::map<std::string, std::string> contents_;
  std::string piece_;
  LaunchHistory history_;
  LaunchRecord record_;
  bool capturing_ = false;
  Graph capture_;
  std::unordered_map<uint64_t, Graph> graphs_;
  std::unordered_map<uint64_t, Upload> captured_;
};

bool Server::hello(const std::string& token) {
  ClientHello hello;
  ServerHello answer{};
  Welcome welcome{};
  if (!read_all(fd_, &hello, sizeof hello)) return false;
  std::memcpy(answer.magic, kMagic, sizeof kMagic);
  random_bytes(answer.nonce, sizeof answer.nonce);
  answer.status = uint32_t(token.empty() ? HelloStatus::kOk : HelloStatus::kProveToken);
  if (hello.wire_major != kWireMajor) answer.status = uint32_t(HelloStatus::kVersionMismatch);
  write_all(fd_, &answer, sizeof answer);
  if (!token.empty()) {
    Proof proof;
    Digest mac, given;
    uint8_t nonces[64];
    std::memcpy(nonces, hello.nonce, 32);
    std::memcpy(nonces + 32, answer.nonce, 32);
    if (!read_all(fd_, &proof, sizeof proof) || !hmac_sha256(token, nonces, sizeof nonces, mac)) return false;
    std::memcpy(given.data(), proof.mac, 32);
    if (!same_digest(mac, given)) {
      welcome.status = uint32_t(HelloStatus::kRefusedToken);
      std::snprintf(welcome.text, sizeof welcome.text, "it refused the token");
    }
  }
  write_all(fd_, &welcome, sizeof welcome);
  return welcome.status == 0;
}

void Server::open(Reader& in, Writer& out) {
  base_ = in.u64();
  bytes_ = in.u64();
  mirror_ = in.u64();
  for (uint64_t at : {base_, mirror_})
    mmap(reinterpret_cast<void*>(at), bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  next_ = base_;
  Snapshot snapshot;
  snapshot.driver_version = 13000;
  DeviceSnapshot device;
  device.name = "loopback";
  device.pci_bus_id = "0000:01:00.0";
  device.total_nbytes = uint64_t{1} << 30;
  device.attributes[75] = 9;
  device.priority_greatest = -5;
  snapshot.devices.push_back(device);
  snapshot.errors.push_back({700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"});
  Writer bytes;
  encode_snapshot(snapshot, bytes);
  out.blob(bytes.data(), bytes.size());
}

void Server::push(Op op, const Writer& payload) {
  FrameHeader header{uint32_t(payload.size()), op, 0, 0};
  write_all(fd_, &header, sizeof header);
  write_all(fd_, payload.data(), payload.size());
}

void Server::bring(uint64_t cookie, uint64_t src, uint64_t nbytes, bool ok) {
  for (uint64_t at = 0; at < nbytes; at += kPieceBytes) {
    uint64_t n = std::min<uint64_t>(kPieceBytes, nbytes - at);
    Writer out;
    out.u64(cookie);
    out.u64(at);
    out.u64(at + n == nbytes || !ok);
    out.blob(ok ? reinterpret_cast<void*>(src + at) : nullptr, n);
    push(kOpHostWrite, out);
    if (!ok) return;
  }
}

int Server::memory_call(Op op, Reader& in, Writer& out) {
  if (op == kOp_cuMemAlloc_v2 || op == kOp_cuMemAllocAsync) {
    in.u64();
    uint64_t n = (in.u64() + 511) / 512 * 512;
    if (n > (uint64_t{1} << 34)) return 2;
    out.u64(next_);
    next_ += n;
    return 0;
  }
  if (op == kOp_cuMemGetInfo_v2) return out.u64(uint64_t{1} << 29), out.u64(uint64_t{1} << 30), 0;
  if (op == kOp_cuEventElapsedTime || op == kOp_cuEventElapsedTime_v2) return out.u64(0), 0;
  if (op == kOpUpload) {
    uint64_t dst = in.u64();
    in.u64();
    Blob data = in.blob();
    if (!inside(dst, data.nbytes)) return kInvalid;
    std::memcpy(reinterpret_cast<void*>(dst), data.data, data.nbytes);
    return 0;
  }
  if (op == kOpMirrorUpload) {
    uint64_t dst = in.u64();
    Blob data = in.blob();
    if (!inside(dst, data.nbytes)) return kInvalid;
    std::memcpy(reinterpret_cast<void*>(dst), data.data, data.nbytes);
    return 0;
  }
  if (op == kOpDownload || op == kOpMirrorDownload) {
    uint64_t src = in.u64(), n = in.u64();
    if (!inside(src, n)) return kInvalid;
    out.blob(reinterpret_cast<void*>(src), n);
    return 0;
  }
  if (op == kOpDownloadAsync) {
    uint64_t cookie = in.u64(), src = in.u64(), n = in.u64();
    if (capturing_) return capture_.downloads.push_back({cookie, {src, n}}), 0;
    bring(cookie, src, n, inside(src, n));
    return inside(src, n) ? 0 : kInvalid;
  }
  return -1;
}

int Server::module_call(Op op, Reader& in, Writer& out) {
  if (op == kOpModuleData) {
    uint64_t offset = in.u64(), total = in.u64();
    Blob digest = in.blob(), data = in.blob();
    if (offset == 0) piece_.clear();
    piece_.append(data.data, data.nbytes);
    Digest made;
    if (piece_.size() != total) return 0;
    if (!sha256(piece_.data(), piece_.size(), made) || std::memcmp(made.data(), digest.data, 32) != 0) return kInvalid;
    contents_[std::string(digest.data, digest.nbytes)] = piece_;
    return 0;
  }
  if (op == kOp_cuModuleLoadDataEx || op == kOp_cuLibraryLoadData) {
    in.u64();
    Blob digest = in.blob();
    return contents_.count(std::string(digest.data, digest.nbytes)) ? 0 : kUnknownContent;
  }
  if (op == kOp_cuModuleGetFunction || op == kOp_cuLibraryGetKernel) {
    uint64_t handle = in.u64();
    in.u64();
    Function function;
    in.text(function.name);
    if (function.name == "missing") return kMissing;
    uint64_t offset = 0;  // the sizes of the parameters follow in the name: dump_8_2
    for (size_t at = function.name.find('_'); at != std::string::npos; at = function.name.find('_', at + 1)) {
      uint64_t n = std::strtoull(function.name.c_str() + at + 1, nullptr, 10), align = 1;
      while (align < 8 && n % (align * 2) == 0) align *= 2;
      offset = (offset + align - 1) / align * align;
      function.parameters.push_back({offset, n});
      offset += n;
    }
    out.u64(function.parameters.size());
    for (auto& p : function.parameters) out.u64(p.first), out.u64(p.second);
    functions_[handle] = function;
    return 0;
  }
  return -1;
}

int Server::graph_call(Op op, Reader& in, Writer& out) {
  if (op == kOp_cuStreamBeginCapture_v2) {
    capturing_ = true;
    capture_ = Graph{};
  } else if (op == kOp_cuStreamEndCapture) {
    in.u64();
    graphs_[in.u64()] = capture_;
    capturing_ = false;
  } else if (op == kOp_cuStreamIsCapturing) {
    out.u64(capturing_);
  } else if (op == kOpUploadCaptured) {
    uint64_t cookie = in.u64(), dst = in.u64();
    in.u64();
    Blob data = in.blob();
    captured_[cookie] = {dst, std::vector<char>(data.data, data.data + data.nbytes)};
    capture_.uploads.push_back(cookie);
  } else if (op == kOpRefreshCaptured) {
    Upload& upload = captured_[in.u64()];
    Blob data = in.blob();
    upload.data.assign(data.data, data.data + data.nbytes);
  } else if (op == kOp_cuGraphInstantiateWithFlags) {
    uint64_t exec = in.u64();
    graphs_[exec] = graphs_[in.u64()];
  } else if (op == kOp_cuGraphLaunch) {
    Graph& graph = graphs_[in.u64()];
    for (uint64_t cookie : graph.uploads)
      std::memcpy(reinterpret_cast<void*>(captured_[cookie].dst), captured_[cookie].data.data(), captured_[cookie].data.size());
    for (auto& d : graph.downloads) bring(d.first, d.second.first, d.second.second, true);
  } else {
    return -1;
  }
  return 0;
}

int Server::launch(Reader& in) {
  uint64_t handle;
  if (!decode_launch(history_, in, handle, record_)) return std::fprintf(stderr, "malformed launch\n"), std::exit(3), 0;
  auto it = functions_.find(handle);
  if (it == functions_.end() || (record_.head().stream && handle_index(record_.head().stream) > 0xFFFF)) return kUnknownHandle;
  if (it->second.name.compare(0, 4, "dump") != 0) return 0;
  uint64_t to;
  std::memcpy(&to, record_.parameters(), 8);
  if (!inside(to, record_.head().parameters_nbytes)) return 700;
  std::memcpy(reinterpret_cast<void*>(to), record_.parameters(), record_.head().parameters_nbytes);
  return 0;
}

int Server::execute(const FrameHeader& frame, Reader& in, Writer& out) {
  if (frame.op == kOpOpen) return open(in, out), 0;
  if (frame.op == kOpLaunch) return launch(in);
  int result = memory_call(frame.op, in, out);
  if (result == -1) result = module_call(frame.op, in, out);
  if (result == -1) result = graph_call(frame.op, in, out);
  if (result != -1) return result;
  if (frame.op == kOpHostFunction) {
    in.u64();
    Writer call;
    waiting_for_ = in.u64();
    call.u64(waiting_for_);
    call.u64(0);
    push(kOpHostCall, call);
  }
  if (frame.op == kOpHostCallDone && in.u64() == waiting_for_) waiting_for_ = 0;
  return 0;
}

void Server::serve() {
  std::vector<char> input(size_t{1} << 20), payload;
  size_t at = 0, end = 0;
  ReplyHeader deferred{};
  auto take = [&](void* out, size_t n) {
    char* to = static_cast<char*>(out);
    while (n > 0) {
      if (at == end) at = 0, end = read_some(fd_, input.data(), input.size());
      if (end == 0) return false;
      size_t m = std::min(n, end - at);
      std::memcpy(to, input.data() + at, m);
      at += m, to += m, n -= m;
    }
    return true;
  };
  FrameHeader frame;
  std::deque<std::pair<uint64_t, Writer>> held;  // replies that wait for a host function to end
  while (take(&frame, sizeof frame)) {
    payload.resize(frame.nbytes);
    if (!take(payload.data(), frame.nbytes) || frame.op == kOpGoodbye) return;
    Reader in(payload.data(), payload.size());
    Writer out;
    int result = execute(frame, in, out);
    ++frames_;
    if (!(frame.flags & kWantsReply) && result && !deferred.deferred_result) {
      deferred.deferred_result = result;
      deferred.deferred_sequence = frame.sequence;
    }
    auto answer = [&](uint64_t sequence, const Writer& outputs, int code) {
      ReplyHeader reply = deferred;
      deferred = {};
      reply.result = code;
      reply.executed = frame.sequence;
      ++replies;
      FrameHeader header{uint32_t(sizeof reply + outputs.size()), 0, kIsReply, sequence};
      write_all(fd_, &header, sizeof header);
      write_all(fd_, &reply, sizeof reply);
      write_all(fd_, outputs.data(), outputs.size());
    };
    if ((frame.flags & kWantsReply) && waiting_for_) held.emplace_back(frame.sequence, out);
    else if (frame.flags & kWantsReply) answer(frame.sequence, out, result);
    for (; !waiting_for_ && !held.empty(); held.pop_front()) answer(held.front().first, held.front().second, 0);
    if (frames_ % kAckEveryFrames == 0) {
      Writer ack;
      ack.u64(frame.sequence);
      push(kOpAck, ack);
    }
  }
}

}  // namespace

int main() {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) || listen(listener, 16)) return 1;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  const char* token = std::getenv("LOOPBACK_TOKEN");
  for (;;) {
    int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) return 1;
    prepare_socket(fd, 30);
    {
      Server server(fd);
      if (server.hello(token ? token : "")) server.serve();
      std::printf("%llu\n", static_cast<unsigned long long>(server.replies));
      std::fflush(stdout);
    }
    close(fd);
  }
}
