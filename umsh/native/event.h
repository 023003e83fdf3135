/* event.h: waiting, with a bound, for what a driver tells by calling back. */
#ifndef UMSH_EVENT_H
#define UMSH_EVENT_H
#include <stdint.h>

/* cdef begin */
uintptr_t umsh_event_new(void);
void umsh_event_drop(uintptr_t event);
int umsh_event_wait(uintptr_t event, int64_t timeout_ns);
int32_t umsh_event_status(uintptr_t event);
uintptr_t umsh_event_callback(void);
/* cdef end */

#endif
