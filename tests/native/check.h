/* check.h: the assertions of the C tests; a program's exit code is the number of failed checks. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);                                              \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
        }                                                                                                    \
    } while (0)

static inline int finish(void) { return failures > 100 ? 100 : failures; }

#endif
