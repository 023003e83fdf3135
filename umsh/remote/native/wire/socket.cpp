#include "socket.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace umsh {

namespace {

constexpr int kBufferBytes = 4 << 20;

void set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

// Connects within the time; -1 with errno set.
int connect_one(int family, const sockaddr* address, socklen_t nbytes, int timeout_s) {
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = connect(fd, address, nbytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{fd, POLLOUT, 0};
    socklen_t length = sizeof error;
    int n = poll(&ready, 1, timeout_s * 1000);
    if (n <= 0) error = n == 0 ? ETIMEDOUT : errno;
    else getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  close(fd);
  errno = error;
  return -1;
}

int connect_local(const std::string& path, int timeout_s, std::string& error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    error = "the socket's path is too long";
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  int fd = connect_one(AF_UNIX, reinterpret_cast<sockaddr*>(&address), sizeof address, timeout_s);
  if (fd < 0) error = std::strerror(errno);
  return fd;
}

}  // namespace

bool parse_address(const std::string& text, Address& out) {
  if (text.compare(0, 5, "unix:") == 0) {
    out = {true, text.substr(5), ""};
    return !out.host.empty();
  }
  size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return false;
  out = {false, text.substr(0, colon), text.substr(colon + 1)};
  if (out.host.front() == '[' && out.host.back() == ']') out.host = out.host.substr(1, out.host.size() - 2);
  return out.port.size() <= 5 && out.port.find_first_not_of("0123456789") == std::string::npos;
}

int connect_to(const Address& address, int timeout_s, std::string& error) {
  if (address.local) return connect_local(address.host, timeout_s, error);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int code = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found)) {
    error = gai_strerror(code);
    return -1;
  }
  int fd = -1;
  for (addrinfo* a = found; a && fd < 0; a = a->ai_next) {
    fd = connect_one(a->ai_family, a->ai_addr, a->ai_addrlen, timeout_s);
    if (fd < 0) error = std::strerror(errno);
  }
  freeaddrinfo(found);
  return fd;
}

void prepare_socket(int fd, int dead_s) {
  set(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  set(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, dead_s / 3);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, dead_s / 6);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, dead_s * 1000);
}

size_t read_some(int fd, void* out, size_t capacity) {
  for (;;) {
    ssize_t n = recv(fd, out, capacity, 0);
    if (n > 0) return size_t(n);
    if (n < 0 && errno == EINTR) continue;
    return 0;
  }
}

bool read_all(int fd, void* out, size_t nbytes) {
  char* at = static_cast<char*>(out);
  while (nbytes > 0) {
    size_t n = read_some(fd, at, nbytes);
    if (n == 0) return false;
    at += n;
    nbytes -= n;
  }
  return true;
}

bool write_all(int fd, iovec* parts, int count) {
  while (count > 0) {
    if (parts->iov_len == 0) {
      ++parts;
      --count;
      continue;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = size_t(count);
    ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    for (size_t left = size_t(n); left > 0;) {
      size_t taken = left < parts->iov_len ? left : parts->iov_len;
      parts->iov_base = static_cast<char*>(parts->iov_base) + taken;
      parts->iov_len -= taken;
      left -= taken;
      if (parts->iov_len == 0 && left > 0) {
        ++parts;
        --count;
      }
    }
  }
  return true;
}

bool write_all(int fd, const void* data, size_t nbytes) {
  iovec part{const_cast<void*>(data), nbytes};
  return write_all(fd, &part, 1);
}

bool BufferedReader::read(void* out, size_t nbytes) {
  char* to = static_cast<char*>(out);
  while (nbytes > 0) {
    size_t held = end_ - at_;
    if (held == 0) ++fills_;
    if (held == 0 && nbytes >= buffer_.size()) return read_all(fd_, to, nbytes);
    if (held == 0) {
      at_ = 0;
      end_ = held = read_some(fd_, buffer_.data(), buffer_.size());
      if (held == 0) return false;
    }
    size_t n = held < nbytes ? held : nbytes;
    std::memcpy(to, buffer_.data() + at_, n);
    at_ += n;
    to += n;
    nbytes -= n;
  }
  return true;
}

}  // namespace umsh
