// Stream sockets: addresses, whole reads and writes, and noticing a dead peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct iovec;

namespace umsh {

// "host:port", "[v6]:port" or "unix:/path".
struct Address {
  bool local = false;  // a Unix socket; `host` is its path
  std::string host, port;
};
bool parse_address(const std::string& text, Address& out);

// A connected socket, or -1 with the reason in `error`. Tries every address of the name within `timeout_s`.
int connect_to(const Address& address, int timeout_s, std::string& error);

// No delay, large buffers, keepalive and a limit on unacknowledged data: a black hole is noticed in `dead_s`.
void prepare_socket(int fd, int dead_s);

// All bytes, or false: end of stream, error, or (with a receive timeout on the socket) too late.
bool read_all(int fd, void* out, size_t nbytes);
bool write_all(int fd, const void* data, size_t nbytes);
bool write_all(int fd, iovec* parts, int count);  // changes `parts`

// One read of at most `capacity` bytes; 0 at the end of the stream or on an error.
size_t read_some(int fd, void* out, size_t capacity);

// Reads through a buffer, so that small frames cost few system calls; long reads go straight to their memory.
class BufferedReader {
 public:
  BufferedReader(int fd, size_t capacity) : fd_(fd), buffer_(capacity) {}
  bool read(void* out, size_t nbytes);
  // How often the socket was read: grows exactly when the peer was heard.
  uint64_t fills() const { return fills_; }

 private:
  const int fd_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  uint64_t fills_ = 0;
};

}  // namespace umsh
