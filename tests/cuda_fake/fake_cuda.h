/* fake_cuda.h: state of the fake driver and the few types of its ABI. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct handle *HANDLE; /* contexts, streams, events, modules, functions: all opaque */

enum {
    CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201, CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ALREADY_REGISTERED = 712, CUDA_ERROR_NOT_REGISTERED = 713
};

#define FAKE_EXPORT __attribute__((visibility("default")))

/* Counts the call of this function; nonzero when the test asked for it to fail. */
CUresult fake_call(const char *name);
#define FAKE_CALL()                            \
    do {                                       \
        CUresult code_ = fake_call(__func__);  \
        if (code_ != CUDA_SUCCESS) return code_; \
    } while (0)

/* Live memory by start address: how = 'h' host, 'd' device, 'm' managed, 'r' registered, 'v' reserved. */
int fake_live_add(char how, uint64_t start, size_t nbytes);
int fake_live_remove(char how, uint64_t start);
int fake_live_overlaps(char how, uint64_t start, size_t nbytes);
int fake_live_holds(char how, uint64_t address);

extern int fake_initialised, fake_context_depth;
extern size_t fake_free_bytes;
#endif
