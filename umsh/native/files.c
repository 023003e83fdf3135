/* files.c: O_DIRECT reads with unaligned head, tail and destination; falls back to plain reads and says so. */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)8 << 20)
#define BOUNCE_BYTES ((size_t)1 << 20)
#define ALIGNMENT_MAX ((unsigned)64 << 10)
#define RETRIES_MAX 1000

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U /* Linux 6.1 */
#endif
#define TMPFS_MAGIC 0x01021994
#define RAMFS_MAGIC 0x858458f6
#define HUGETLBFS_MAGIC 0x958458f6

typedef struct {
    int fd;        /* the caller's */
    int fd_direct; /* the same file opened with O_DIRECT, or -1 */
    int in_place;  /* direct reads may target the destination itself */
    char *bounce;
    umsh_file_report *report;
} reader;

/* pread that survives signals; 0 only at the end of the file. */
static ssize_t read_at(int fd, void *buffer, size_t n, uint64_t offset) {
    ssize_t got = -1;
    for (int i = 0; i < RETRIES_MAX; i++) {
        got = pread(fd, buffer, n, (off_t)offset);
        if (got >= 0 || errno != EINTR) break;
    }
    return got < 0 ? -errno : got;
}

static int refused(ssize_t got) { return got == -EINVAL || got == -EFAULT || got == -EOPNOTSUPP; }

static void give_up_direct(reader *r, int error) {
    if (r->fd_direct >= 0) close(r->fd_direct);
    r->fd_direct = -1;
    r->report->direct = 0;
    r->report->fallback_errno = error;
}

/* struct statx of this C library may end before stx_dio_*: read them at their fixed offsets (linux/stat.h). */
static int ask_alignment(int fd, unsigned *memory, unsigned *offset) {
    _Alignas(8) unsigned char raw[256] = {0};
    uint32_t mask;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, raw) != 0) return -errno;
    memcpy(&mask, raw, sizeof mask);
    memcpy(memory, raw + 0x98, sizeof *memory);
    memcpy(offset, raw + 0x9c, sizeof *offset);
    return mask & STATX_DIOALIGN ? 0 : -EOPNOTSUPP;
}

/* The smallest power of two from 512 that a direct read accepts, for kernels that do not tell. */
static int probe_alignment(reader *r, unsigned *alignment) {
    ssize_t got = -EINVAL;
    for (unsigned a = 512; a <= ALIGNMENT_MAX && got == -EINVAL; a *= 2) {
        *alignment = a;
        got = read_at(r->fd_direct, r->bounce + a, a, a);
    }
    return got < 0 ? (int)got : 0;
}

static int in_memory_file_system(int fd) {
    struct statfs s;
    if (fstatfs(fd, &s) != 0) return 0;
    return (uint32_t)s.f_type == TMPFS_MAGIC || (uint32_t)s.f_type == RAMFS_MAGIC ||
           (uint32_t)s.f_type == HUGETLBFS_MAGIC;
}

/* Open the caller's file once more for direct reads and find its alignment; on refusal note the reason. */
static void open_direct(reader *r) {
    umsh_file_report *report = r->report;
    char path[64];
    int e;
    r->fd_direct = -1;
    if (in_memory_file_system(r->fd)) {
        give_up_direct(r, EOPNOTSUPP); /* the file is page cache: some accept O_DIRECT and copy all the same */
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->fd);
    r->fd_direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (r->fd_direct < 0) {
        give_up_direct(r, errno);
        return;
    }
    e = ask_alignment(r->fd, &report->memory_alignment, &report->alignment);
    if (e == 0 && report->alignment == 0) e = -EINVAL; /* the file system says: not for this file */
    else if (e != 0) {
        e = probe_alignment(r, &report->alignment);
        report->memory_alignment = report->alignment;
    }
    if (e == 0 && (report->alignment > ALIGNMENT_MAX || report->memory_alignment > ALIGNMENT_MAX)) e = -EINVAL;
    if (e != 0) give_up_direct(r, -e);
    report->direct = r->fd_direct >= 0;
}

/* One direct read at `offset`, in place where everything is aligned, else through the bounce buffer. When the
 * destination becomes aligned at the next block, only that block is bounced. Bytes delivered, 0 at the end of
 * the file, or -errno. */
static ssize_t read_direct(reader *r, uint64_t offset, uintptr_t dst, size_t n) {
    size_t unit = r->report->alignment, memory = r->report->memory_alignment ? r->report->memory_alignment : 1;
    size_t head = offset & (unit - 1), whole = n & ~(unit - 1), span;
    ssize_t got;
    if (head == 0 && whole > 0 && r->in_place && dst % memory == 0) {
        got = read_at(r->fd_direct, (void *)dst, whole < PIECE_BYTES ? whole : PIECE_BYTES, offset);
        if (!refused(got)) return got;
        r->in_place = 0;
        r->report->fallback_errno = (int)-got;
        if (got == -EFAULT) return got; /* a bad address must stay an error, not become a fault in memcpy */
    }
    span = (head + n + unit - 1) & ~(unit - 1);
    if (span > BOUNCE_BYTES) span = BOUNCE_BYTES;
    if (r->in_place && n > BOUNCE_BYTES && head && (dst + unit - head) % memory == 0) span = unit;
    got = read_at(r->fd_direct, r->bounce, span, offset - head);
    if (got < 0) return got;
    if ((size_t)got <= head) return 0;
    got -= (ssize_t)head;
    if ((size_t)got > n) got = (ssize_t)n;
    memcpy((void *)dst, r->bounce + head, (size_t)got);
    r->report->nbytes_bounced += (size_t)got;
    return got;
}

static int read_all(reader *r, uint64_t offset, uintptr_t dst, size_t n) {
    while (n > 0) {
        ssize_t got;
        if (r->fd_direct >= 0) {
            got = read_direct(r, offset, dst, n);
            if (refused(got)) {
                give_up_direct(r, (int)-got);
                continue;
            }
            if (got > 0) r->report->nbytes_direct += (size_t)got;
        } else {
            got = read_at(r->fd, (void *)dst, n < PIECE_BYTES ? n : PIECE_BYTES, offset);
            if (got > 0) r->report->nbytes_buffered += (size_t)got;
        }
        if (got < 0) return (int)got;
        if (got == 0) return UMSH_FILE_CHANGED; /* it was long enough when we began */
        offset += (uint64_t)got;
        dst += (uintptr_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* Read [offset, offset + n) of a regular file to dst. 0, UMSH_FILE_SHORT, UMSH_FILE_CHANGED, or -errno. The file
 * position of fd is not used; bytes outside [dst, dst + n) are not touched. */
int umsh_file_read(int fd, uint64_t offset, uintptr_t dst, size_t n, umsh_file_report *report) {
    reader r = {.fd = fd, .fd_direct = -1, .in_place = 1, .report = report};
    struct stat before, after;
    int result;
    memset(report, 0, sizeof *report);
    if (fstat(fd, &before) != 0) return -errno;
    if (!S_ISREG(before.st_mode)) return S_ISDIR(before.st_mode) ? -EISDIR : -EINVAL;
    report->file_bytes = (uint64_t)before.st_size;
    if (offset > report->file_bytes || n > report->file_bytes - offset) return UMSH_FILE_SHORT;
    if (n == 0) return 0;
    r.bounce = mmap(NULL, BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r.bounce == MAP_FAILED) return -errno;
    open_direct(&r);
    result = read_all(&r, offset, dst, n);
    if (result == 0 && (fstat(fd, &after) != 0 || after.st_size != before.st_size)) result = UMSH_FILE_CHANGED;
    if (r.fd_direct >= 0) close(r.fd_direct);
    munmap(r.bounce, BOUNCE_BYTES);
    return result;
}

/* Bytes of [offset, offset + n) in the page cache, or -errno. */
int64_t umsh_file_resident(int fd, uint64_t offset, uint64_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages;
    uint64_t start = offset & ~(uint64_t)(page - 1);
    int64_t resident = 0;
    unsigned char *seen;
    void *p;
    if (n == 0) return 0;
    pages = (size_t)((offset + n - start + page - 1) / page);
    p = mmap(NULL, pages * page, PROT_READ, MAP_SHARED, fd, (off_t)start);
    if (p == MAP_FAILED) return -errno;
    seen = malloc(pages);
    if (!seen || mincore(p, pages * page, seen) != 0) resident = seen ? -errno : -ENOMEM;
    for (size_t i = 0; resident >= 0 && i < pages; i++)
        if (seen[i] & 1) resident += (int64_t)page;
    free(seen);
    munmap(p, pages * page);
    return resident;
}
