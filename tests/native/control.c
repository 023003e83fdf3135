/* control.c: flags and locks between threads, where the holder dies and where waiters give up. */
#define _GNU_SOURCE
#include "control.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"
#include "work.h"

#define ROUNDS 3000
#define LONG_NS 60000000000 /* never reached in a passing run */

static _Alignas(128) uint32_t lock[UMSH_LOCK_BYTES / 4];
static _Alignas(128) uint32_t words[3 * UMSH_LINE_BYTES / 4];
static uint32_t counter; /* plain: the race detector sees whether the lock orders it */
static int algorithm;

static void reset(int a) {
    memset(lock, 0, sizeof lock);
    memset(words, 0, sizeof words);
    counter = 0;
    algorithm = a;
}

static void *count_up(void *tag) {
    int64_t done = umsh_lock_rounds((uintptr_t)lock, (uintptr_t)&counter, ROUNDS, algorithm,
                                    (uint32_t)(uintptr_t)tag, LONG_NS);
    CHECK(done == ROUNDS);
    return NULL;
}

/* Two threads of the CPU and two that pose as the GPU: no increment is lost. */
static void exclusion(void) {
    /* Ids of processes that live: a tag whose thread is gone would be reported as dead. */
    uintptr_t tags[4] = {1, (uintptr_t)getpid(), UMSH_TAG_GPU | 1, UMSH_TAG_GPU | 2};
    pthread_t threads[4];
    for (int a = UMSH_LOCK_CAS; a <= UMSH_LOCK_PETERSON; a++) {
        reset(a);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, count_up, (void *)tags[i]);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        CHECK(counter == 4 * ROUNDS);
        CHECK(lock[UMSH_LOCK_HOLDER] == 0);
    }
}

static void *count_impatiently(void *tag) {
    uint32_t own = (uint32_t)(uintptr_t)tag, seed = own;
    uintptr_t had = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int r = umsh_lock_acquire((uintptr_t)lock, algorithm, own, rand_r(&seed) % 3000);
        CHECK(r == UMSH_LOCK_OK || r == UMSH_LOCK_TIMEOUT);
        if (r != UMSH_LOCK_OK) continue;
        counter = counter + 1;
        had++;
        CHECK(umsh_lock_release((uintptr_t)lock, algorithm, own) == UMSH_LOCK_OK);
    }
    return (void *)had;
}

/* Waiters that give up leave the lock usable: no increment lost, and it can still be had at the end. */
static void giving_up(void) {
    uintptr_t tags[4] = {1, (uintptr_t)getpid(), UMSH_TAG_GPU | 1, UMSH_TAG_GPU | 2};
    pthread_t threads[4];
    for (int a = UMSH_LOCK_CAS; a <= UMSH_LOCK_PETERSON; a++) {
        uintptr_t total = 0;
        reset(a);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, count_impatiently, (void *)tags[i]);
        for (int i = 0; i < 4; i++) {
            void *had;
            pthread_join(threads[i], &had);
            total += (uintptr_t)had;
        }
        CHECK(counter == total && total > 0);
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, UMSH_TAG_GPU | 9, 0) == UMSH_LOCK_OK);
        CHECK(umsh_lock_release((uintptr_t)lock, a, UMSH_TAG_GPU | 9) == UMSH_LOCK_OK);
    }
}

/* More waiters give up in a row than the ticket lock has slots, across the wrap of the ticket counter. */
static void ticket_slots(void) {
    reset(UMSH_LOCK_TICKET);
    lock[UMSH_LOCK_NEXT] = lock[UMSH_LOCK_SERVING] = UINT32_MAX - 70;
    for (int lap = 0; lap < 5; lap++) {
        CHECK(umsh_lock_acquire((uintptr_t)lock, UMSH_LOCK_TICKET, UMSH_TAG_GPU | 1, 0) == UMSH_LOCK_OK);
        for (int i = 0; i < 3 * UMSH_LOCK_QUEUE; i++)
            CHECK(umsh_lock_acquire((uintptr_t)lock, UMSH_LOCK_TICKET, UMSH_TAG_GPU | 2, 0) ==
                  UMSH_LOCK_TIMEOUT);
        CHECK(umsh_lock_release((uintptr_t)lock, UMSH_LOCK_TICKET, UMSH_TAG_GPU | 1) == UMSH_LOCK_OK);
        CHECK(lock[UMSH_LOCK_NEXT] == lock[UMSH_LOCK_SERVING]);
        for (int i = 0; i < UMSH_LOCK_QUEUE; i++)
            CHECK(lock[UMSH_LOCK_GONE + i] == 0);
    }
}

static void misuse(void) {
    for (int a = UMSH_LOCK_CAS; a <= UMSH_LOCK_PETERSON; a++) {
        uint32_t before[UMSH_LOCK_BYTES / 4];
        reset(a);
        CHECK(umsh_lock_release((uintptr_t)lock, a, 0) == UMSH_LOCK_NOT_HOLDER);
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, 0, 0) == UMSH_LOCK_OK);
        CHECK(lock[UMSH_LOCK_HOLDER] == umsh_own_tag());
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, 0, LONG_NS) == UMSH_LOCK_RELOCK);
        memcpy(before, lock, sizeof lock);
        CHECK(umsh_lock_release((uintptr_t)lock, a, UMSH_TAG_GPU | 1) == UMSH_LOCK_NOT_HOLDER);
        CHECK(memcmp(before, lock, sizeof lock) == 0);
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, UMSH_TAG_GPU | 1, 100000) == UMSH_LOCK_TIMEOUT);
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, UMSH_TAG_GPU | 1, -1) == UMSH_LOCK_TIMEOUT);
        CHECK(umsh_lock_release((uintptr_t)lock, a, 0) == UMSH_LOCK_OK);
        CHECK(umsh_lock_release((uintptr_t)lock, a, 0) == UMSH_LOCK_NOT_HOLDER);
    }
    CHECK(umsh_lock_acquire((uintptr_t)lock, 9, 0, 0) == UMSH_LOCK_UNKNOWN);
    CHECK(umsh_lock_release((uintptr_t)lock, -1, 0) == UMSH_LOCK_UNKNOWN);
}

static void *hold_and_end(void *unused) {
    CHECK(umsh_lock_acquire((uintptr_t)lock, algorithm, 0, 0) == UMSH_LOCK_OK);
    return unused;
}

/* A thread, and a child process that is a zombie until it is waited for, die with the lock. */
static void holder_died(void) {
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int a = UMSH_LOCK_CAS; a <= UMSH_LOCK_PETERSON; a++) {
        pthread_t thread;
        siginfo_t info;
        pid_t child;
        reset(a);
        pthread_create(&thread, NULL, hold_and_end, NULL);
        pthread_join(thread, NULL);
        CHECK(umsh_lock_acquire((uintptr_t)lock, a, 0, LONG_NS) == UMSH_LOCK_HOLDER_DIED);
        memset(shared, 0, 4096);
        umsh_own_tag();
        child = fork();
        if (child == 0) /* the cached tag of the parent must not be used here */
            _exit(umsh_lock_acquire((uintptr_t)shared, a, 0, 0) != UMSH_LOCK_OK ||
                  shared[UMSH_LOCK_HOLDER] != (uint32_t)getpid());
        CHECK(child > 0 && waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 0);
        CHECK(umsh_lock_acquire((uintptr_t)shared, a, 0, LONG_NS) == UMSH_LOCK_HOLDER_DIED);
        waitpid(child, NULL, 0);
    }
    munmap(shared, 4096);
}

static void *answer(void *unused) {
    CHECK(umsh_echo((uintptr_t)words, ROUNDS, 0, LONG_NS) == ROUNDS);
    return unused;
}

static void *poll_thread(void *unused) {
    CHECK(umsh_poll_answer((uintptr_t)words, 100, 3, LONG_NS) == 100);
    return unused;
}

static void flags(void) {
    uint32_t *flag = words;
    pthread_t threads[3];
    reset(0);
    CHECK(umsh_flag_wait((uintptr_t)flag, 0, 0) == UMSH_WAIT_REACHED);
    CHECK(umsh_flag_wait((uintptr_t)flag, 1, 2000000) == UMSH_WAIT_TIMEOUT);
    CHECK(umsh_flag_wait((uintptr_t)flag, 1, INT64_MIN) == UMSH_WAIT_TIMEOUT);
    umsh_flag_set((uintptr_t)flag, 7); /* the setter ran ahead of the waiter */
    CHECK(umsh_flag_wait((uintptr_t)flag, 5, 0) == UMSH_WAIT_REACHED);
    umsh_flag_set((uintptr_t)flag, UINT32_MAX);
    CHECK(umsh_flag_wait((uintptr_t)flag, 2, 0) == UMSH_WAIT_TIMEOUT);
    umsh_flag_set((uintptr_t)flag, 2); /* wrapped */
    CHECK(umsh_flag_wait((uintptr_t)flag, UINT32_MAX, INT64_MAX) == UMSH_WAIT_REACHED);
    reset(0);
    pthread_create(&threads[0], NULL, answer, NULL);
    CHECK(umsh_echo((uintptr_t)words, ROUNDS, 1, LONG_NS) == ROUNDS);
    pthread_join(threads[0], NULL);
    reset(0);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, poll_thread, NULL);
    CHECK(umsh_echo((uintptr_t)words, 100, 1, LONG_NS) == 100);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    reset(0);
    CHECK(umsh_echo((uintptr_t)words, 5, 1, 1000000) == 0); /* no partner: ends by itself */
}

int main(void) {
    flags();
    misuse();
    exclusion();
    giving_up();
    ticket_slots();
    holder_died();
    return finish();
}
