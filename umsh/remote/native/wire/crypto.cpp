#include "crypto.h"

#include <dlfcn.h>
#include <sys/random.h>

namespace umsh {

namespace {

// Loaded with RTLD_LOCAL and called through pointers: a program's own libcrypto, of whatever version, is not touched.
struct Crypto {
  unsigned char* (*sha256)(const unsigned char*, size_t, unsigned char*) = nullptr;
  unsigned char* (*hmac)(const void*, const void*, int, const unsigned char*, size_t, unsigned char*, unsigned*) = nullptr;
  const void* (*evp_sha256)() = nullptr;
  std::string missing;

  Crypto() {
    void* library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library) {
      sha256 = reinterpret_cast<decltype(sha256)>(dlsym(library, "SHA256"));
      hmac = reinterpret_cast<decltype(hmac)>(dlsym(library, "HMAC"));
      evp_sha256 = reinterpret_cast<decltype(evp_sha256)>(dlsym(library, "EVP_sha256"));
    }
    if (!sha256 || !hmac || !evp_sha256)
      missing = "libcrypto.so.3 (OpenSSL 3) is missing: a token cannot be proved nor a module identified. "
                "Install OpenSSL 3 (package libssl3 or openssl-libs).";
  }
};

const Crypto& crypto() {
  static const auto* loaded = new Crypto;  // never destroyed: used by threads that outlive main
  return *loaded;
}

}  // namespace

const std::string& crypto_missing() { return crypto().missing; }

bool sha256(const void* data, size_t nbytes, Digest& out) {
  if (!crypto().missing.empty()) return false;
  return crypto().sha256(static_cast<const unsigned char*>(data), nbytes, out.data()) != nullptr;
}

bool hmac_sha256(const std::string& key, const void* data, size_t nbytes, Digest& out) {
  if (!crypto().missing.empty()) return false;
  unsigned length = 0;
  return crypto().hmac(crypto().evp_sha256(), key.data(), int(key.size()), static_cast<const unsigned char*>(data), nbytes,
                       out.data(), &length) != nullptr && length == out.size();
}

bool random_bytes(void* out, size_t nbytes) { return getrandom(out, nbytes, 0) == ssize_t(nbytes); }

bool same_digest(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= unsigned(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace umsh
