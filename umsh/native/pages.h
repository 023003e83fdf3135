/* pages.h: anonymous and shared memory on 4 KiB, transparent huge or hugetlb pages, verified. */
#ifndef UMSH_PAGES_H
#define UMSH_PAGES_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
#define UMSH_PAGES_4K 0
#define UMSH_PAGES_THP 1
#define UMSH_PAGES_HUGETLB 2
#define UMSH_VERIFIED_NOT 0
#define UMSH_VERIFIED_PAGEMAP_SCAN 1
#define UMSH_VERIFIED_SMAPS 2

typedef struct {
    uintptr_t address;          /* first byte; 0 when nothing is mapped */
    size_t nbytes;              /* as asked for */
    size_t nbytes_mapped;       /* rounded up to whole pages */
    size_t huge_bytes;          /* in pages larger than the base page, as last verified */
    size_t huge_bytes_possible; /* in whole huge pages: what `requested` could have given */
    size_t page_bytes;          /* the large page of `requested`, or the base page */
    int requested;              /* UMSH_PAGES_* */
    int verified_by;            /* UMSH_VERIFIED_* */
} umsh_mapping;

size_t umsh_pages_huge_bytes(void);
int umsh_pages_map(size_t nbytes, int kind, int prefault, umsh_mapping *out);
int umsh_pages_map_shared(size_t nbytes, int *fd, int kind, umsh_mapping *out);
int umsh_pages_attach(int fd, size_t nbytes, int kind, umsh_mapping *out);
int umsh_pages_verify(umsh_mapping *mapping);
int umsh_pages_verify_smaps(umsh_mapping *mapping);
int umsh_pages_collapse(umsh_mapping *mapping, int64_t timeout_ns);
int umsh_pages_unmap(umsh_mapping *mapping);
/* cdef end */

#endif
