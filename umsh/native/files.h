/* files.h: file bytes straight into memory, past the page cache where the file system can. */
#ifndef UMSH_FILES_H
#define UMSH_FILES_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
#define UMSH_FILE_SHORT 1   /* the file ends before offset + n; nothing was read */
#define UMSH_FILE_CHANGED 2 /* the file's size changed while it was read; the bytes are not to be trusted */

typedef struct {
    int direct;         /* 1 when no byte went through the page cache */
    int fallback_errno; /* why direct reading was given up, 0 when it was not */
    unsigned alignment; /* of offset and length, as found; 0 when not direct */
    unsigned memory_alignment;
    uint64_t file_bytes;    /* size of the file before reading */
    size_t nbytes_direct;   /* read past the page cache, of which ... */
    size_t nbytes_bounced;  /* ... through an aligned buffer */
    size_t nbytes_buffered; /* read through the page cache */
} umsh_file_report;

int umsh_file_read(int fd, uint64_t offset, uintptr_t dst, size_t n, umsh_file_report *report);
int64_t umsh_file_resident(int fd, uint64_t offset, uint64_t n);
/* cdef end */

#endif
