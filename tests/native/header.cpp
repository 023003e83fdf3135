// header.cpp: umsh.h alone serves a C++ program: flags, locks and a region's functions.
#include "umsh.h"

#include <thread>

static const umsh_region *published;

int main() {
    alignas(UMSH_LINE_BYTES) static uint32_t lock[UMSH_LOCK_BYTES / 4];
    alignas(UMSH_LINE_BYTES) static uint32_t flag[UMSH_FLAG_BYTES / 4];
    uint32_t tag = umsh_thread_tag();
    std::thread setter([] { umsh_set(flag, 3); });
    int failures = umsh_wait(flag, 3, INT64_C(10000000000)) != UMSH_WAIT_REACHED;
    setter.join();
    for (int a = UMSH_LOCK_CAS; a <= UMSH_LOCK_PETERSON; a++) {
        failures += umsh_lock(lock, a, tag, 0) != UMSH_LOCK_OK;
        failures += umsh_lock(lock, a, tag, 0) != UMSH_LOCK_RELOCK;
        failures += umsh_unlock(lock, a, tag) != UMSH_LOCK_OK;
        for (uint32_t &word : lock)
            word = 0;
    }
    umsh_region region = {flag, 0, sizeof flag, [](const umsh_region *r, size_t, size_t) { published = r; },
                          nullptr};
    region.publish(&region, 0, 4);
    return failures + (published != &region);
}
