/* prefault.c: allocate the pages of a mapping ahead of use, on several CPUs when it is large.
 *
 * Zeroing is nearly all of the cost, and one CPU alone does not saturate memory. The helpers are kept off the
 * caller's CPU: left to itself the scheduler wakes them behind the caller, which never sleeps. */
#define _GNU_SOURCE
#include "prefault.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "parallel.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define NBYTES_PARALLEL_MIN ((size_t)16 << 20)
#define NBYTES_EACH ((size_t)32 << 20) /* less is not worth starting one more thread */
#define HELPERS_MIN 3
#define RETRIES_MAX 16

static int populate(void *base, int worker, size_t at, size_t nbytes) {
    char *p = (char *)base + at;
    (void)worker;
    for (int i = 0; i < RETRIES_MAX; i++) {
        if (madvise(p, nbytes, MADV_POPULATE_WRITE) == 0) return 0;
        if (errno == EINVAL) { /* an older kernel: touch each page without changing it */
            size_t page = (size_t)sysconf(_SC_PAGESIZE);
            for (size_t k = 0; k < nbytes; k += page)
                __atomic_fetch_or(p + k, 0, __ATOMIC_RELAXED);
            return 0;
        }
        if (errno != EAGAIN && errno != EINTR) break;
    }
    return -errno;
}

int umsh_prefault(char *p, size_t nbytes, size_t unit) {
    size_t helpers = nbytes / NBYTES_EACH;
    if (nbytes < NBYTES_PARALLEL_MIN) return populate(p, 0, 0, nbytes);
    if (helpers < HELPERS_MIN) helpers = HELPERS_MIN;
    if (helpers > UMSH_WORKERS_MAX - 1) helpers = UMSH_WORKERS_MAX - 1;
    return umsh_parallel(populate, p, nbytes, unit, (int)helpers, 1);
}
