/* event.c: a word that a driver's thread sets once and a waiter sleeps on (futex); no polling. */
#include "event.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>

#include "umsh.h"

/* Two parties hold an event: who waits, and the driver until it has called back. The last one frees it. */
typedef struct {
    uint32_t done;
    int32_t status;
    uint32_t holders;
} event;

/* Address of a pending event, held by the caller and by the callback to come; 0 when memory is out. */
uintptr_t umsh_event_new(void) {
    event *e = calloc(1, sizeof *e);
    if (e) e->holders = 2;
    return (uintptr_t)e;
}

/* One party lets go. */
void umsh_event_drop(uintptr_t address) {
    event *e = (event *)address;
    if (__atomic_sub_fetch(&e->holders, 1, __ATOMIC_ACQ_REL) == 0) free(e);
}

/* What the driver calls, on a thread of its own: the form of clSetEventCallback. */
static void call_back(void *native, int32_t status, void *user) {
    event *e = user;
    (void)native;
    e->status = status;
    __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &e->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    umsh_event_drop((uintptr_t)e);
}

uintptr_t umsh_event_callback(void) { return (uintptr_t)call_back; }

/* 0 once the driver has called back, 1 when timeout_ns passed before. */
int umsh_event_wait(uintptr_t address, int64_t timeout_ns) {
    event *e = (event *)address;
    int64_t now_ns = umsh_now_ns(), deadline_ns = INT64_MAX;
    if (timeout_ns < INT64_MAX - now_ns) deadline_ns = now_ns + timeout_ns;
    while (!__atomic_load_n(&e->done, __ATOMIC_ACQUIRE)) {
        int64_t left_ns = deadline_ns - umsh_now_ns();
        struct timespec t;
        if (left_ns <= 0) return 1;
        t.tv_sec = (time_t)(left_ns / 1000000000);
        t.tv_nsec = (long)(left_ns % 1000000000);
        syscall(SYS_futex, &e->done, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0); /* early returns: look again */
    }
    return 0;
}

/* The status the driver gave; valid once umsh_event_wait has returned 0. */
int32_t umsh_event_status(uintptr_t address) { return ((event *)address)->status; }
