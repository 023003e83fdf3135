// The hello: both ends know that they speak the same wire before a call travels.
#include "connection.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../generated/ops.h"
#include "../wire/crypto.h"
#include "../wire/socket.h"

#ifndef UMSH_VERSION
#define UMSH_VERSION "0.1.0"
#endif

namespace umsh {

namespace {

void program_name(char* out, size_t capacity) {
  int fd = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t n = read(fd, out, capacity - 1);
  close(fd);
  if (n > 0 && out[n - 1] == '\n') out[n - 1] = 0;
}

std::string text_of(const char* text, size_t capacity) { return std::string(text, strnlen(text, capacity)); }

bool check(uint32_t status, const std::string& text, std::string& error) {
  if (status == uint32_t(HelloStatus::kOk)) return true;
  error = text.empty() ? "it refused the hello (status " + std::to_string(status) + ")" : text;
  return false;
}

bool prove(int fd, const std::string& token, const uint8_t (&nonces)[64], std::string& error) {
  Proof proof;
  Digest mac;
  if (token.empty()) {
    error = "it asks for a token: set UMSH_TOKEN, or give umsh-run --token-file";
    return false;
  }
  if (!hmac_sha256(token, nonces, sizeof nonces, mac)) {
    error = crypto_missing();
    return false;
  }
  std::memcpy(proof.mac, mac.data(), sizeof proof.mac);
  if (write_all(fd, &proof, sizeof proof)) return true;
  error = "the connection broke during the hello";
  return false;
}

void limit_receive(int fd, unsigned seconds) {
  timeval limit{time_t(seconds), 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

}  // namespace

bool Connection::say_hello(const Settings& settings, std::string& error) {
  ClientHello hello{};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.wire_major = kWireMajor;
  hello.wire_minor = kWireMinor;
  hello.kind = uint32_t(HelloKind::kSession);
  std::memcpy(hello.tables, kTablesDigest, sizeof hello.tables);
  if (!random_bytes(hello.nonce, sizeof hello.nonce)) error = "no random bytes from the kernel";
  hello.pid = uint64_t(getpid());
  program_name(hello.program, sizeof hello.program);
  std::strncpy(hello.version, UMSH_VERSION, sizeof hello.version - 1);

  ServerHello answer;
  if (!error.empty()) return false;
  if (!write_all(fd_, &hello, sizeof hello) || !read_all(fd_, &answer, sizeof answer)) {
    error = "it did not answer the hello: is it an umsh-serve?";
    return false;
  }
  if (std::memcmp(answer.magic, kMagic, sizeof kMagic) != 0) {
    error = "what answered is no umsh-serve";
    return false;
  }
  if (answer.status == uint32_t(HelloStatus::kProveToken)) {
    uint8_t nonces[64];
    std::memcpy(nonces, hello.nonce, 32);
    std::memcpy(nonces + 32, answer.nonce, 32);
    if (!prove(fd_, settings.token, nonces, error)) return false;
  } else if (!check(answer.status, text_of(answer.text, sizeof answer.text), error)) {
    return false;
  }
  Welcome welcome;
  if (!read_all(fd_, &welcome, sizeof welcome)) {
    error = "the connection broke during the hello";
    return false;
  }
  return check(welcome.status, text_of(welcome.text, sizeof welcome.text), error);
}

std::unique_ptr<Connection> Connection::open(const Settings& settings, std::string& error) {
  Address address;
  if (!parse_address(settings.server, address)) {
    error = "'" + settings.server + "' is no address: host:port or unix:/path";
    return nullptr;
  }
  int fd = connect_to(address, settings.connect_timeout_s, error);
  if (fd < 0) return nullptr;
  prepare_socket(fd, int(kDeadSeconds));
  std::unique_ptr<Connection> connection(new Connection(fd));
  // Starting a session on the server may take a device's context: longer than the hello itself.
  limit_receive(fd, kDeadSeconds);
  if (!connection->say_hello(settings, error)) return nullptr;
  return connection;
}

}  // namespace umsh
