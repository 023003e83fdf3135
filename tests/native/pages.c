/* pages.c: mappings where the kernel is old, refuses, or runs out, injected by replaced system calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "check.h"

static int populate_errno, populate_failures, scan_errno, collapse_errno;

static int fake_madvise(void *p, size_t n, int advice) {
    if (advice == 23 && populate_errno && __atomic_fetch_sub(&populate_failures, 1, __ATOMIC_RELAXED) > 0) {
        errno = populate_errno;
        return -1;
    }
    if (advice == 25 && collapse_errno) {
        errno = collapse_errno;
        return -1;
    }
    return madvise(p, n, advice);
}

static int fake_ioctl(int fd, unsigned long request, void *argument) {
    if (scan_errno) {
        errno = scan_errno;
        return -1;
    }
    return ioctl(fd, request, argument);
}

#define madvise fake_madvise
#define ioctl fake_ioctl
#include "../../umsh/native/pages.c"
#define populate prefault_populate
#include "../../umsh/native/prefault.c"
#define now_ns verify_now_ns
#include "../../umsh/native/verify.c"

#define MIB ((size_t)1 << 20)

static int all_zero(const umsh_mapping *m) {
    const unsigned char *p = (const unsigned char *)m->address;
    for (size_t i = 0; i < m->nbytes_mapped; i += 512)
        if (p[i]) return 0;
    return 1;
}

static void old_kernel(void) {
    umsh_mapping m;
    populate_errno = EINVAL;
    populate_failures = 1000;
    scan_errno = ENOTTY;
    CHECK(umsh_pages_map(20 * MIB + 5, UMSH_PAGES_THP, 1, &m) == 0);
    CHECK(umsh_pages_verify(&m) == 0 && m.verified_by == UMSH_VERIFIED_SMAPS);
    CHECK(all_zero(&m) && m.huge_bytes <= m.nbytes_mapped);
    CHECK(umsh_pages_unmap(&m) == 0);
    populate_errno = scan_errno = 0;
}

static void refusals(void) {
    umsh_mapping m;
    populate_errno = ENOMEM;
    populate_failures = 1000;
    CHECK(umsh_pages_map(4096, UMSH_PAGES_4K, 1, &m) == -ENOMEM && m.address == 0);
    CHECK(umsh_pages_map(32 * MIB, UMSH_PAGES_THP, 1, &m) == -ENOMEM && m.address == 0);
    populate_errno = EAGAIN; /* passes after some tries, or ends */
    populate_failures = 3;
    CHECK(umsh_pages_map(4096, UMSH_PAGES_4K, 1, &m) == 0 && all_zero(&m));
    CHECK(umsh_pages_unmap(&m) == 0 && umsh_pages_unmap(&m) == 0);
    populate_failures = 1 << 30;
    CHECK(umsh_pages_map(4096, UMSH_PAGES_4K, 1, &m) == -EAGAIN);
    populate_errno = 0;
    CHECK(umsh_pages_map(0, UMSH_PAGES_4K, 1, &m) == -EINVAL);
    CHECK(umsh_pages_map(SIZE_MAX, UMSH_PAGES_THP, 1, &m) == -EINVAL);
    CHECK(umsh_pages_map((size_t)1 << 60, UMSH_PAGES_THP, 0, &m) == -ENOMEM && m.address == 0);
    CHECK(umsh_pages_map(4096, 9, 1, &m) == -EINVAL);
    CHECK(umsh_pages_verify(&m) == -EINVAL && umsh_pages_collapse(&m, 0) == -EINVAL);
}

/* Every second huge page is missing: counted exactly, and filled where the kernel can. */
static void holes(void) {
    umsh_mapping m;
    size_t unit = umsh_pages_huge_bytes();
    CHECK(umsh_pages_map(8 * unit, UMSH_PAGES_THP, 0, &m) == 0);
    for (size_t at = 0; at < 8 * unit; at += 2 * unit)
        madvise((void *)(m.address + at), unit, MADV_NOHUGEPAGE);
    memset((void *)m.address, 1, m.nbytes_mapped);
    for (size_t at = 0; at < 8 * unit; at += 2 * unit)
        madvise((void *)(m.address + at), unit, MADV_HUGEPAGE);
    CHECK(umsh_pages_verify(&m) == 0);
    if (m.verified_by == UMSH_VERIFIED_PAGEMAP_SCAN) {
        size_t scanned = m.huge_bytes;
        CHECK(scanned <= 4 * unit);
        CHECK(umsh_pages_verify_smaps(&m) == 0 && m.huge_bytes == scanned);
        if (umsh_pages_collapse(&m, 10000000000) == 0) CHECK(m.huge_bytes == 8 * unit);
        CHECK(m.huge_bytes >= scanned);
    }
    CHECK(((char *)m.address)[3 * unit] == 1);
    CHECK(umsh_pages_unmap(&m) == 0);
}

static void collapse_ends(void) {
    umsh_mapping m;
    CHECK(umsh_pages_map(8 * MIB, UMSH_PAGES_THP, 0, &m) == 0);
    madvise((void *)m.address, m.nbytes_mapped, MADV_NOHUGEPAGE);
    memset((void *)m.address, 1, m.nbytes_mapped);
    CHECK(umsh_pages_verify(&m) == 0 && m.huge_bytes == 0);
    CHECK(umsh_pages_collapse(&m, 0) == -ETIMEDOUT);
    collapse_errno = EBUSY;
    CHECK(umsh_pages_collapse(&m, 1000000000) == -EBUSY && m.huge_bytes == 0);
    collapse_errno = 0;
    CHECK(umsh_pages_unmap(&m) == 0);
}

static void shared(void) {
    umsh_mapping m, other;
    int fd;
    for (int kind = UMSH_PAGES_4K; kind <= UMSH_PAGES_THP; kind++) {
        CHECK(umsh_pages_map_shared(3 * MIB, &fd, kind, &m) == 0);
        CHECK(umsh_pages_attach(fd, 3 * MIB, kind, &other) == 0);
        *(uint32_t *)(m.address + 2 * MIB) = 77;
        CHECK(*(uint32_t *)(other.address + 2 * MIB) == 77);
        CHECK(ftruncate(fd, 4096) == -1 && errno == EPERM); /* or a peer could make us fault */
        CHECK(umsh_pages_unmap(&other) == 0);
        CHECK(umsh_pages_attach(fd, 3 * MIB + 1, kind, &other) == -ERANGE);
        CHECK(umsh_pages_unmap(&m) == 0);
        close(fd);
    }
    CHECK(umsh_pages_attach(-1, 4096, UMSH_PAGES_4K, &other) == -EBADF);
    CHECK(umsh_pages_map_shared(0, &fd, UMSH_PAGES_4K, &m) == -EINVAL && fd == -1);
}

int main(void) {
    old_kernel();
    refusals();
    holes();
    collapse_ends();
    shared();
    return finish();
}
