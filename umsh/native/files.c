/* files.c: direct reads with unaligned head, tail and destination; falls back to plain reads and says so. */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "parallel.h"

#define PIECE_BYTES ((size_t)8 << 20)
#define READERS 4 /* at once: what a disk needs to be busy */
#define BOUNCE_BYTES ((size_t)2 << 20) /* one for each reader */
#define ALIGNMENT_MAX ((unsigned)64 << 10)
#define RETRIES_MAX 1000
#define RESIDENT_PAGES 16384 /* looked at by one call */

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U /* Linux 6.1 */
#endif
#define TMPFS_MAGIC 0x01021994
#define RAMFS_MAGIC 0x858458f6
#define HUGETLBFS_MAGIC 0x958458f6

/* One read, shared by its workers. */
typedef struct {
    int fd;        /* the caller's */
    int fd_direct; /* the same file opened with O_DIRECT, or -1 */
    int refusal;   /* errno of a direct read that was refused for good, or 0 */
    int bounce_only;
    uint64_t offset; /* of the first byte wanted, rounded down to `alignment` */
    size_t skip;     /* bytes between `offset` and the first one wanted */
    uintptr_t dst;   /* where the first byte wanted goes */
    char *bounce;    /* READERS aligned buffers */
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

/* The C library's struct statx may end before stx_dio_*: read them at their fixed places (linux/stat.h). */
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
        got = read_at(r->fd_direct, r->bounce + a, a, 0);
    }
    return got < 0 ? (int)got : 0;
}

static int in_memory_file_system(int fd) {
    struct statfs s;
    if (fstatfs(fd, &s) != 0) return 0;
    return (uint32_t)s.f_type == TMPFS_MAGIC || (uint32_t)s.f_type == RAMFS_MAGIC ||
           (uint32_t)s.f_type == HUGETLBFS_MAGIC;
}

/* Open the caller's file once more for direct reads and find its alignment; 0 or the errno of the refusal. */
static int open_direct(reader *r) {
    umsh_file_report *report = r->report;
    char path[64];
    int e;
    if (in_memory_file_system(r->fd)) return EOPNOTSUPP; /* all page cache, even where O_DIRECT is accepted */
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->fd);
    r->fd_direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (r->fd_direct < 0) return errno;
    e = ask_alignment(r->fd, &report->memory_alignment, &report->alignment);
    if (e != 0) {
        e = probe_alignment(r, &report->alignment);
        report->memory_alignment = report->alignment;
    } else if (report->alignment == 0) {
        e = -EINVAL; /* the file system's way to say: not for this file */
    }
    if (report->memory_alignment == 0) report->memory_alignment = report->alignment;
    if (report->alignment > ALIGNMENT_MAX || report->memory_alignment > ALIGNMENT_MAX) e = -EINVAL;
    if (e != 0) report->alignment = report->memory_alignment = 0;
    return -e;
}

/* One direct read at `offset`, in place where everything is aligned, else through the bounce buffer. When the
 * destination becomes aligned at the next block, only that block is bounced. Bytes delivered, 0 at the end of
 * the file, or -errno. */
static ssize_t read_direct(reader *r, char *bounce, uint64_t offset, uintptr_t dst, size_t n) {
    size_t unit = r->report->alignment, memory = r->report->memory_alignment;
    size_t head = offset & (unit - 1), whole = n & ~(unit - 1), span;
    int bounce_only = __atomic_load_n(&r->bounce_only, __ATOMIC_RELAXED);
    ssize_t got;
    if (head == 0 && whole > 0 && !bounce_only && (dst & (memory - 1)) == 0) {
        got = read_at(r->fd_direct, (void *)dst, whole, offset);
        if (!refused(got) || got == -EFAULT) return got; /* EFAULT: memcpy could not write there either */
        __atomic_store_n(&r->bounce_only, 1, __ATOMIC_RELAXED);
        bounce_only = 1;
    }
    span = (head + n + unit - 1) & ~(unit - 1);
    if (span > BOUNCE_BYTES) span = BOUNCE_BYTES;
    if (!bounce_only && n > BOUNCE_BYTES && head && ((dst + unit - head) & (memory - 1)) == 0) span = unit;
    got = read_at(r->fd_direct, bounce, span, offset - head);
    if (got < 0) return got;
    got = (size_t)got > head + n ? (ssize_t)n : got - (ssize_t)head;
    if (got <= 0) return 0;
    memcpy((void *)dst, bounce + head, (size_t)got);
    __atomic_fetch_add(&r->report->nbytes_bounced, (size_t)got, __ATOMIC_RELAXED);
    return got;
}

static int read_range(reader *r, char *bounce, uint64_t offset, uintptr_t dst, size_t n) {
    while (n > 0) {
        int direct = __atomic_load_n(&r->refusal, __ATOMIC_RELAXED) == 0;
        ssize_t got =
            direct ? read_direct(r, bounce, offset, dst, n) : read_at(r->fd, (void *)dst, n, offset);
        if (direct && refused(got)) {
            __atomic_store_n(&r->refusal, (int)-got, __ATOMIC_RELAXED);
            continue;
        }
        if (got < 0) return (int)got;
        if (got == 0) return UMSH_FILE_CHANGED; /* it was long enough when we began */
        __atomic_fetch_add(direct ? &r->report->nbytes_direct : &r->report->nbytes_buffered, (size_t)got,
                           __ATOMIC_RELAXED);
        offset += (uint64_t)got;
        dst += (uintptr_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* `at` counts from the aligned start, so that only the first part has an unaligned head. */
static int read_part(void *context, int worker, size_t at, size_t n) {
    reader *r = context;
    char *bounce = r->bounce + (size_t)worker * BOUNCE_BYTES;
    size_t head = at == 0 ? r->skip : 0;
    return read_range(r, bounce, r->offset + at + head, r->dst + (at + head - r->skip), n - head);
}

static int read_open(reader *r, uint64_t offset, size_t n) {
    size_t bounce_bytes = READERS * BOUNCE_BYTES;
    int result;
    r->bounce = mmap(NULL, bounce_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->bounce == MAP_FAILED) return -errno;
    /* 4 KiB pages make each direct read pin hundreds of them, which costs more than the copy itself. */
    if (n > BOUNCE_BYTES) madvise(r->bounce, bounce_bytes, MADV_HUGEPAGE);
    r->refusal = open_direct(r);
    r->skip = r->report->alignment ? offset & (r->report->alignment - 1) : 0;
    r->offset = offset - r->skip;
    result = umsh_parallel(read_part, r, r->skip + n, PIECE_BYTES, READERS - 1, 0);
    r->report->fallback_errno = r->refusal;
    r->report->direct = r->refusal == 0;
    if (r->fd_direct >= 0) close(r->fd_direct);
    munmap(r->bounce, bounce_bytes);
    return result;
}

/* Read [offset, offset + n) of a regular file to dst. 0, UMSH_FILE_SHORT, UMSH_FILE_CHANGED, or -errno. The
 * file position of fd is not used; bytes outside [dst, dst + n) are not touched. */
int umsh_file_read(int fd, uint64_t offset, uintptr_t dst, size_t n, umsh_file_report *report) {
    reader r = {.fd = fd, .fd_direct = -1, .dst = dst, .report = report};
    struct stat before, after;
    int result;
    memset(report, 0, sizeof *report);
    if (fstat(fd, &before) != 0) return -errno;
    if (S_ISDIR(before.st_mode)) return -EISDIR;
    if (!S_ISREG(before.st_mode)) return -EINVAL;
    report->file_bytes = (uint64_t)before.st_size;
    if (offset > report->file_bytes || n > report->file_bytes - offset) return UMSH_FILE_SHORT;
    if (n == 0) return 0;
    result = read_open(&r, offset, n);
    if (result == 0 && fstat(fd, &after) != 0) return -errno;
    return result == 0 && after.st_size != before.st_size ? UMSH_FILE_CHANGED : result;
}

/* Bytes of [offset, offset + n) in the page cache, in whole pages, or -errno. */
int64_t umsh_file_resident(int fd, uint64_t offset, uint64_t n) {
    unsigned char seen[RESIDENT_PAGES];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = offset & ~(page - 1), end = offset + n;
    int64_t resident = 0;
    while (at < end) {
        size_t window =
            end - at < RESIDENT_PAGES * page ? (size_t)(end - at) : (size_t)(RESIDENT_PAGES * page);
        void *p = mmap(NULL, window, PROT_READ, MAP_SHARED, fd, (off_t)at);
        int error = 0;
        if (p == MAP_FAILED) return -errno;
        if (mincore(p, window, seen) != 0) error = errno;
        munmap(p, window);
        if (error) return -error;
        for (uint64_t i = 0; i * page < window; i++)
            if (seen[i] & 1) resident += (int64_t)page;
        at += window;
    }
    return resident;
}
