// SHA-256, its HMAC and random bytes, from the system's libcrypto: loaded when first needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace umsh {

using Digest = std::array<uint8_t, 32>;

// Empty when libcrypto is usable; else what is missing and what to install.
const std::string& crypto_missing();

// Both give false when libcrypto is missing.
bool sha256(const void* data, size_t nbytes, Digest& out);
bool hmac_sha256(const std::string& key, const void* data, size_t nbytes, Digest& out);

bool random_bytes(void* out, size_t nbytes);  // from the kernel

// Takes the same time wherever the first difference is.
bool same_digest(const Digest& a, const Digest& b);

}  // namespace umsh
