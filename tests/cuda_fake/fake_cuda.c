/* fake_cuda.c: a libcuda.so.1 without a GPU; host memory stands for device memory, kernels do nothing. */
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>

int fake_attribute(int attribute);
int fake_devices(void);
int fake_version(void);
int fake_pending(void);

static HANDLE new_handle(void) { return malloc(16); }

/* ---- device ---------------------------------------------------------------------------------------- */

FAKE_EXPORT CUresult cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    FAKE_CALL();
    if (fake_devices() == 0 || (visible && *visible == 0)) return CUDA_ERROR_NO_DEVICE;
    fake_initialised = 1;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDriverGetVersion(int *version) {
    FAKE_CALL();
    *version = fake_version();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetCount(int *count) {
    FAKE_CALL();
    *count = fake_devices();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    FAKE_CALL();
    *device = ordinal;
    return ordinal < fake_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FAKE_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    FAKE_CALL();
    if (attribute >= 147) return CUDA_ERROR_INVALID_VALUE; /* an old driver does not know the newest */
    *value = fake_attribute(attribute);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    FAKE_CALL();
    strncpy(name, "Fake GPU", (size_t)length);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device) {
    FAKE_CALL();
    memset(uuid, 7, 16);
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDeviceGetUuid(char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

FAKE_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    FAKE_CALL();
    strncpy(id, "0000:01:00.0", (size_t)length);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceTotalMem_v2(size_t *nbytes, CUdevice device) {
    FAKE_CALL();
    *nbytes = (size_t)8 << 30;
    return CUDA_SUCCESS;
}

/* ---- context --------------------------------------------------------------------------------------- */

FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(HANDLE *context, CUdevice device) {
    FAKE_CALL();
    *context = new_handle();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxPushCurrent_v2(HANDLE context) {
    FAKE_CALL();
    fake_context_depth++;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxPopCurrent_v2(HANDLE *context) {
    FAKE_CALL();
    fake_context_depth--;
    *context = NULL;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxSynchronize(void) { return fake_call(__func__); }
FAKE_EXPORT CUresult cuCtxRecordEvent(HANDLE context, HANDLE event) { return fake_call(__func__); }
FAKE_EXPORT CUresult cuCtxWaitEvent(HANDLE context, HANDLE event) { return fake_call(__func__); }
FAKE_EXPORT int fake_depth(void) { return fake_context_depth; }

/* ---- streams, events ------------------------------------------------------------------------------- */

FAKE_EXPORT CUresult cuStreamCreate(HANDLE *stream, unsigned flags) {
    FAKE_CALL();
    *stream = new_handle();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuStreamWaitEvent(HANDLE stream, HANDLE event, unsigned flags) {
    return fake_call(__func__);
}

FAKE_EXPORT CUresult cuEventCreate(HANDLE *event, unsigned flags) {
    FAKE_CALL();
    *event = new_handle();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuEventDestroy_v2(HANDLE event) {
    FAKE_CALL();
    free(event);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuEventRecord(HANDLE event, HANDLE stream) { return fake_call(__func__); }

FAKE_EXPORT CUresult cuEventQuery(HANDLE event) {
    FAKE_CALL();
    return fake_pending() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static CUresult allocate(char how, uint64_t *pointer, size_t nbytes) {
    if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (nbytes > fake_free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = (uint64_t)aligned_alloc(4096, (nbytes + 4095) & ~(size_t)4095);
    if (!*pointer || !fake_live_add(how, *pointer, nbytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    memset((void *)*pointer, 0xA5, nbytes); /* nothing promises zeroes: the driver under test must zero */
    return CUDA_SUCCESS;
}

static CUresult release(char how, uint64_t pointer) {
    if (!fake_live_remove(how, pointer)) return CUDA_ERROR_INVALID_VALUE;
    free((void *)pointer);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemHostAlloc(void **pointer, size_t nbytes, unsigned flags) {
    FAKE_CALL();
    return allocate('h', (uint64_t *)pointer, nbytes);
}

FAKE_EXPORT CUresult cuMemFreeHost(void *pointer) {
    FAKE_CALL();
    return release('h', (uint64_t)pointer);
}

FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t nbytes) {
    FAKE_CALL();
    return allocate('d', pointer, nbytes);
}

FAKE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t nbytes, unsigned flags) {
    FAKE_CALL();
    return allocate('m', pointer, nbytes);
}

FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    FAKE_CALL();
    return release(fake_live_holds('m', pointer) ? 'm' : 'd', pointer);
}

FAKE_EXPORT CUresult cuMemHostRegister_v2(void *pointer, size_t nbytes, unsigned flags) {
    FAKE_CALL();
    if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (fake_live_overlaps('r', (uint64_t)pointer, nbytes)) return CUDA_ERROR_ALREADY_REGISTERED;
    return fake_live_add('r', (uint64_t)pointer, nbytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_EXPORT CUresult cuMemHostUnregister(void *pointer) {
    FAKE_CALL();
    return fake_live_remove('r', (uint64_t)pointer) ? CUDA_SUCCESS : CUDA_ERROR_NOT_REGISTERED;
}

FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned flags) {
    FAKE_CALL();
    if (!fake_live_holds('r', (uint64_t)pointer) && !fake_live_holds('h', (uint64_t)pointer))
        return CUDA_ERROR_INVALID_VALUE;
    *device = (uint64_t)pointer;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    FAKE_CALL();
    if (attribute != 2) return CUDA_ERROR_INVALID_VALUE;
    if (!fake_live_holds('h', pointer) && !fake_live_holds('r', pointer)) return CUDA_ERROR_INVALID_VALUE;
    *(int *)value = 1; /* CU_MEMORYTYPE_HOST */
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    FAKE_CALL();
    *free_bytes = fake_free_bytes;
    *total = (size_t)8 << 30;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t nbytes) {
    FAKE_CALL();
    memset((void *)pointer, value, nbytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t nbytes, HANDLE stream) {
    return cuMemsetD8_v2(pointer, value, nbytes);
}

FAKE_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t nbytes, HANDLE stream) {
    FAKE_CALL();
    memcpy((void *)to, from, nbytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t nbytes, HANDLE stream) {
    FAKE_CALL();
    memcpy(to, (const void *)from, nbytes);
    return CUDA_SUCCESS;
}

/* ---- virtual memory management: create, reserve and map in one allocation ------------------------- */

FAKE_EXPORT CUresult cuMemGetAllocationGranularity(size_t *unit, const void *asked, int option) {
    FAKE_CALL();
    *unit = 2 << 20;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemCreate(uint64_t *handle, size_t nbytes, const void *asked, uint64_t flags) {
    FAKE_CALL();
    *handle = 1;
    return nbytes % (2 << 20) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t nbytes, size_t alignment, CUdeviceptr at,
                                         uint64_t flags) {
    FAKE_CALL();
    return allocate('v', pointer, nbytes);
}

FAKE_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t nbytes) {
    FAKE_CALL();
    return release('v', pointer);
}

FAKE_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t nbytes, size_t offset, uint64_t handle,
                              uint64_t flags) {
    return fake_call(__func__);
}
FAKE_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t nbytes) { return fake_call(__func__); }
FAKE_EXPORT CUresult cuMemRelease(uint64_t handle) { return fake_call(__func__); }
FAKE_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t nbytes, const void *access, size_t count) {
    return fake_call(__func__);
}

/* ---- kernels: nothing runs -------------------------------------------------------------------------- */

FAKE_EXPORT CUresult cuModuleLoadData(HANDLE *module, const void *image) {
    FAKE_CALL();
    *module = new_handle();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuModuleGetFunction(HANDLE *function, HANDLE module, const char *name) {
    FAKE_CALL();
    *function = new_handle();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuLaunchKernel(HANDLE function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                    unsigned by, unsigned bz, unsigned shared, HANDLE stream, void **args,
                                    void **extra) {
    return fake_call(__func__);
}

FAKE_EXPORT CUresult cuLaunchCooperativeKernel(HANDLE function, unsigned gx, unsigned gy, unsigned gz,
                                               unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                               HANDLE stream, void **args) {
    return fake_call(__func__);
}
