/* fake_control.c: what a test sets and asks; call counts, planned failures, attributes, live memory. */
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 128
#define LIVE_MAX 4096
#define ATTRIBUTES_MAX 256

typedef struct {
    char name[64];
    int calls, fail_at, code;
} function;

typedef struct {
    char how;
    uint64_t start;
    size_t nbytes;
} allocation;

static function functions[NAMES_MAX];
static allocation live[LIVE_MAX];
static int function_count, attributes[ATTRIBUTES_MAX], devices = 1, version = 13000, pending;
int fake_initialised, fake_context_depth;
size_t fake_free_bytes = (size_t)8 << 30;

static function *find(const char *name) {
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].name, name) == 0) return &functions[i];
    if (function_count == NAMES_MAX) abort();
    strncpy(functions[function_count].name, name, sizeof functions[0].name - 1);
    return &functions[function_count++];
}

CUresult fake_call(const char *name) {
    function *f = find(name);
    f->calls++;
    if (f->fail_at && --f->fail_at == 0) return f->code;
    return CUDA_SUCCESS;
}

/* As newly loaded, except that live memory stays live: objects of the test before may still free it. */
FAKE_EXPORT void fake_reset(void) {
    memset(functions, 0, sizeof functions);
    memset(attributes, 0, sizeof attributes);
    function_count = pending = 0;
    devices = 1;
    version = 13000;
    fake_free_bytes = (size_t)8 << 30;
}

/* The nth next call of `name` (1 is the very next) gives `code`. */
FAKE_EXPORT void fake_fail(const char *name, int nth, int code) {
    function *f = find(name);
    f->fail_at = nth;
    f->code = code;
}

FAKE_EXPORT int fake_calls(const char *name) { return find(name)->calls; }
FAKE_EXPORT void fake_set_attribute(int attribute, int value) { attributes[attribute] = value; }
FAKE_EXPORT void fake_set_devices(int count) { devices = count; }
FAKE_EXPORT void fake_set_version(int value) { version = value; }
/* Nonzero: events stay unfinished, as behind a kernel that never returns. */
FAKE_EXPORT void fake_set_pending(int value) { pending = value; }
FAKE_EXPORT void fake_set_free_bytes(size_t nbytes) { fake_free_bytes = nbytes; }

int fake_attribute(int attribute) { return attributes[attribute]; }
int fake_devices(void) { return devices; }
int fake_version(void) { return version; }
int fake_pending(void) { return pending; }

FAKE_EXPORT int fake_live(char how) {
    int count = 0;
    for (int i = 0; i < LIVE_MAX; i++) count += live[i].how == how;
    return count;
}

/* Once the interpreter is gone, print how many registrations it has left alive. */
static int tells;
FAKE_EXPORT void fake_tell_at_exit(void) { tells = 1; }
__attribute__((destructor)) static void tell(void) {
    if (tells) printf("registered %d\n", fake_live('r'));
}

int fake_live_add(char how, uint64_t start, size_t nbytes) {
    for (int i = 0; i < LIVE_MAX; i++) {
        if (live[i].how) continue;
        live[i] = (allocation){how, start, nbytes};
        return 1;
    }
    return 0;
}

int fake_live_remove(char how, uint64_t start) {
    for (int i = 0; i < LIVE_MAX; i++) {
        if (live[i].how != how || live[i].start != start) continue;
        live[i].how = 0;
        return 1;
    }
    return 0;
}

int fake_live_overlaps(char how, uint64_t start, size_t nbytes) {
    for (int i = 0; i < LIVE_MAX; i++)
        if (live[i].how == how && start < live[i].start + live[i].nbytes && live[i].start < start + nbytes)
            return 1;
    return 0;
}

int fake_live_holds(char how, uint64_t address) { return fake_live_overlaps(how, address, 1); }
