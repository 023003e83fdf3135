// Pinned, registered and managed host memory.
#pragma once

#include <cstdint>

namespace umsh {

int free_managed(uint64_t address);
// Where kernels see pinned, registered or managed memory, made visible to them if it was not; 0 with the error.
uint64_t device_address(uint64_t host, int& error);

}  // namespace umsh
