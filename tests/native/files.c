/* files.c: reads that are refused, cut short, interrupted, truncated or overtaken by a writer, injected. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "check.h"

static int refuse_direct, refuse_in_place, refuse_open, hide_alignment; /* errno, or 0 */
static int interrupts, short_reads;                                     /* how many more */
static int cut_after = -1, grow_after = -1;                             /* calls until the file changes */
static int file;
static char *destination;
static size_t destination_bytes;

static int is_direct(int fd) { return fd != file; }

static int countdown(int *left) { return __atomic_fetch_sub(left, 1, __ATOMIC_RELAXED) == 1; }

static int one_more(int *left) {
    return __atomic_load_n(left, __ATOMIC_RELAXED) > 0 && __atomic_fetch_sub(left, 1, __ATOMIC_RELAXED) > 0;
}

static ssize_t fake_pread(int fd, void *buffer, size_t n, off_t offset) {
    int in_place = (char *)buffer >= destination && (char *)buffer < destination + destination_bytes;
    int error = is_direct(fd) ? in_place && refuse_in_place ? refuse_in_place : refuse_direct : 0;
    if (one_more(&interrupts)) error = EINTR;
    if (error) {
        errno = error;
        return -1;
    }
    if (countdown(&cut_after) && ftruncate(file, 1000) != 0) abort();
    if (countdown(&grow_after) && ftruncate(file, 1 << 26) != 0) abort();
    if (n > 512 && one_more(&short_reads)) n = n / 3 & ~511ul;
    return pread(fd, buffer, n ? n : 512, offset);
}

static int fake_open(const char *path, int flags) {
    if (refuse_open) {
        errno = refuse_open;
        return -1;
    }
    return open(path, flags);
}

static long fake_syscall(long number, int fd, const char *path, int flags, unsigned mask, void *out) {
    if (hide_alignment) {
        errno = ENOSYS;
        return -1;
    }
    return syscall(number, fd, path, flags, mask, out);
}

#define pread fake_pread
#define open fake_open
#define syscall fake_syscall
#include "../../umsh/native/files.c"
#undef pread
#undef open
#undef syscall

#define FILE_BYTES ((20 << 20) + 1234)

static char *content;
static int on_disk; /* the folder's file system really reads directly */

static void refill(void) {
    interrupts = short_reads = refuse_direct = refuse_in_place = refuse_open = hide_alignment = 0;
    cut_after = grow_after = -1;
    CHECK(ftruncate(file, 0) == 0);
    for (size_t at = 0; at < FILE_BYTES;)
        at += (size_t)pwrite(file, content + at, FILE_BYTES - at, (off_t)at);
    memset(destination, 0xEE, destination_bytes);
}

/* Read to an odd and to an even place; whatever was injected, the bytes are right and nothing else is
 * touched. */
static umsh_file_report good_read(uint64_t offset, size_t n, size_t shift) {
    umsh_file_report report;
    char *to = destination + 4096 + shift;
    CHECK(umsh_file_read(file, offset, (uintptr_t)to, n, &report) == 0);
    CHECK(memcmp(to, content + offset, n) == 0);
    CHECK(to[-1] == (char)0xEE && to[n] == (char)0xEE);
    CHECK(report.nbytes_direct + report.nbytes_buffered == n);
    CHECK(report.direct == (report.fallback_errno == 0));
    return report;
}

static void refusals(void) {
    int errors[] = {EINVAL, EFAULT, EOPNOTSUPP};
    for (int i = 0; i < 3; i++) {
        umsh_file_report report;
        refill();
        refuse_direct = errors[i];
        report = good_read(123, FILE_BYTES - 200, 0);
        CHECK(!report.direct && report.nbytes_direct == 0);
        if (on_disk) CHECK(report.fallback_errno == errors[i]);
        refill();
        refuse_in_place = errors[i];
        report = good_read(0, FILE_BYTES, 0);
        if (on_disk && errors[i] != EFAULT) CHECK(report.direct && report.nbytes_bounced == FILE_BYTES);
        if (on_disk && errors[i] == EFAULT) CHECK(!report.direct && report.fallback_errno == EFAULT);
        refill();
        refuse_open = errors[i];
        report = good_read(5, 4096, 1);
        CHECK(!report.direct && report.nbytes_buffered == 4096);
    }
}

static void interrupted_and_short(void) {
    for (size_t shift = 0; shift < 600; shift += 512 - 17) {
        refill();
        interrupts = 40;
        good_read(0, FILE_BYTES, shift);
        refill();
        short_reads = 60;
        good_read(77, FILE_BYTES - 99, shift);
        refill();
        short_reads = 60;
        refuse_open = EINVAL;
        good_read(77, FILE_BYTES - 99, shift);
    }
    refill();
    interrupts = 1 << 30; /* without end: gives up with EINTR */
    umsh_file_report report;
    CHECK(umsh_file_read(file, 0, (uintptr_t)destination, 4096, &report) == -EINTR);
}

static void changed(void) {
    umsh_file_report report;
    for (int direct = 0; direct < 2; direct++)
        for (int calls = 1; calls < 3; calls++) {
            refill();
            refuse_open = direct ? 0 : EINVAL;
            cut_after = calls;
            CHECK(umsh_file_read(file, 0, (uintptr_t)destination, FILE_BYTES, &report) == UMSH_FILE_CHANGED);
            refill();
            refuse_open = direct ? 0 : EINVAL;
            grow_after = calls;
            CHECK(umsh_file_read(file, 0, (uintptr_t)destination, FILE_BYTES, &report) == UMSH_FILE_CHANGED);
        }
}

static void bad_calls(void) {
    umsh_file_report report;
    refill();
    CHECK(umsh_file_read(file, 1, (uintptr_t)destination, FILE_BYTES, &report) == UMSH_FILE_SHORT);
    CHECK(report.file_bytes == FILE_BYTES && destination[0] == (char)0xEE);
    CHECK(umsh_file_read(file, UINT64_MAX, (uintptr_t)destination, 2, &report) == UMSH_FILE_SHORT);
    CHECK(umsh_file_read(file, FILE_BYTES, (uintptr_t)destination, 0, &report) == 0);
    CHECK(umsh_file_read(-1, 0, (uintptr_t)destination, 1, &report) == -EBADF);
    CHECK(umsh_file_read(file, 0, 4096, 1 << 20, &report) == -EFAULT); /* nothing is mapped there */
}

static void alignment_unknown(void) {
    refill();
    hide_alignment = 1;
    umsh_file_report report = good_read(123, FILE_BYTES - 200, 3);
    if (on_disk) CHECK(report.direct && report.alignment >= 512);
}

int main(int argc, char **argv) {
    char path[4096];
    umsh_file_report report;
    snprintf(path, sizeof path, "%s/umsh-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    file = mkstemp(path);
    if (file < 0) return 101;
    unlink(path);
    destination_bytes = FILE_BYTES + 16384;
    destination = aligned_alloc(4096, (destination_bytes + 4095) & ~(size_t)4095);
    content = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    refill();
    report = good_read(0, FILE_BYTES, 0);
    on_disk = report.direct;
    printf("direct %d alignment %u\n", on_disk, report.alignment);
    refusals();
    interrupted_and_short();
    changed();
    bad_calls();
    alignment_unknown();
    free(content);
    free(destination);
    return finish();
}
