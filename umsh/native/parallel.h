/* parallel.h: one range of bytes, worked off in parts by a few short-lived threads. For C only. */
#ifndef UMSH_PARALLEL_H
#define UMSH_PARALLEL_H
#include <stddef.h>

#define UMSH_WORKERS_MAX 16

/* Do [at, at + n) of the range; `worker` is 0 .. UMSH_WORKERS_MAX - 1. Not 0: an error, no further part
 * starts. */
typedef int (*umsh_part)(void *context, int worker, size_t at, size_t n);

/* Parts of `unit` bytes of [0, nbytes), in order, by the caller (worker 0) and up to `helpers` threads. With
 * `other_cpus` each helper has another CPU of the affinity mask than the caller's, and there are no more
 * helpers than such CPUs. Returns the first error or 0 after all have ended. */
int umsh_parallel(umsh_part part, void *context, size_t nbytes, size_t unit, int helpers, int other_cpus);

#endif
