/* fake_symbols.c: cuGetProcAddress, through which cuda.bindings finds every function. */
#define _GNU_SOURCE
#include "fake_cuda.h"

#include <dlfcn.h>
#include <stdio.h>

static void *own_symbol(const char *name) {
    static void *self;
    if (!self) {
        Dl_info info;
        if (!dladdr((void *)own_symbol, &info)) return NULL;
        self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    return self ? dlsym(self, name) : NULL;
}

/* The newest version this library has; an absent function gives a null pointer, as the real driver does. */
FAKE_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                         int *status) {
    char versioned[128];
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = own_symbol(versioned);
    if (!*function) *function = own_symbol(name);
    if (status) *status = *function ? 0 : 1;
    return *function ? CUDA_SUCCESS : 500; /* CUDA_ERROR_NOT_FOUND */
}
