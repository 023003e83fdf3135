// Stream sockets: addresses, whole reads and writes, and noticing a dead peer.
#pragma once

#include <cstddef>
#include <string>

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

}  // namespace umsh
