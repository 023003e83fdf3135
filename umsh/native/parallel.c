/* parallel.c: helpers block all signals, claim parts by a counter and are joined before the call returns. */
#define _GNU_SOURCE
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

typedef struct {
    umsh_part part;
    void *context;
    size_t nbytes, unit;
    size_t next; /* offset of the next part to claim */
    int error;
} job;

typedef struct {
    job *shared;
    int index;
    pthread_t thread;
} worker;

static void *work(void *argument) {
    worker *w = argument;
    job *j = w->shared;
    while (!__atomic_load_n(&j->error, __ATOMIC_RELAXED)) {
        size_t at = __atomic_fetch_add(&j->next, j->unit, __ATOMIC_RELAXED);
        int none = 0, error;
        if (at >= j->nbytes) break;
        error = j->part(j->context, w->index, at, j->nbytes - at < j->unit ? j->nbytes - at : j->unit);
        if (error != 0)
            __atomic_compare_exchange_n(&j->error, &none, error, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* How many of `helpers` threads now run; fewer when the system has no more to give. */
static int start(worker *workers, int helpers, const cpu_set_t *cpus) {
    pthread_attr_t attributes;
    sigset_t all, old;
    int n = 0;
    if (pthread_attr_init(&attributes) != 0) return 0;
    if (cpus) pthread_attr_setaffinity_np(&attributes, sizeof *cpus, cpus);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (n < helpers && pthread_create(&workers[n].thread, &attributes, work, &workers[n]) == 0)
        n++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return n;
}

int umsh_parallel(umsh_part part, void *context, size_t nbytes, size_t unit, int helpers, int other_cpus) {
    job j = {.part = part, .context = context, .nbytes = nbytes, .unit = unit};
    worker caller = {.shared = &j}, workers[UMSH_WORKERS_MAX - 1];
    size_t parts = (nbytes + unit - 1) / unit;
    cpu_set_t cpus;
    int started = 0;
    if (helpers > UMSH_WORKERS_MAX - 1) helpers = UMSH_WORKERS_MAX - 1;
    if (other_cpus) {
        int cpu = sched_getcpu(), n = 0;
        if (cpu >= 0 && sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
            CPU_CLR((size_t)cpu, &cpus);
            n = CPU_COUNT(&cpus);
        }
        if (helpers > n) helpers = n;
    }
    if (parts > 0 && (size_t)helpers > parts - 1) helpers = (int)(parts - 1);
    for (int i = 0; i < helpers; i++)
        workers[i] = (worker){.shared = &j, .index = i + 1};
    if (helpers > 0) started = start(workers, helpers, other_cpus ? &cpus : NULL);
    work(&caller);
    for (int i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return j.error;
}
