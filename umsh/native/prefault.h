/* prefault.h: for pages.c only. */
#ifndef UMSH_PREFAULT_H
#define UMSH_PREFAULT_H
#include <stddef.h>

/* Have every page of [p, p + nbytes) allocated, as by a write; contents stay. `unit` divides p. 0 or -errno.
 */
int umsh_prefault(char *p, size_t nbytes, size_t unit);

#endif
