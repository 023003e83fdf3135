// How the client libraries export their functions.
#pragma once

#define UMSH_EXPORT extern "C" __attribute__((visibility("default")))
// For what libnvidia-ml.so.1 uses of libcuda.so.1: one connection serves both.
#define UMSH_SHARED __attribute__((visibility("default")))
