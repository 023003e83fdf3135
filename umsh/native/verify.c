/* verify.c: what the kernel really backs a mapping with, and MADV_COLLAPSE for the holes. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* linux/fs.h of 6.7 and later; repeated here since older headers lack it. */
struct page_region {
    uint64_t start, end, categories;
};
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct pm_scan_arg)
#define CATEGORY_HUGE (1u << 6)
#define REGIONS 64

/* Up to `capacity` ranges of [*from, end) whose pages are huge (or are not, when `inverted`); *from moves
 * past what was looked at. Returns the number of ranges or -errno. */
static int scan(int fd, uint64_t *from, uint64_t end, int inverted, struct page_region *found) {
    struct pm_scan_arg a;
    int n;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.start = *from;
    a.end = end;
    a.vec = (uint64_t)(uintptr_t)found;
    a.vec_len = REGIONS;
    a.category_inverted = inverted ? CATEGORY_HUGE : 0;
    a.category_mask = CATEGORY_HUGE;
    a.return_mask = CATEGORY_HUGE;
    n = ioctl(fd, PAGEMAP_SCAN_IOCTL, &a);
    if (n < 0) return -errno;
    *from = a.walk_end;
    return n;
}

static int verify_scan(umsh_mapping *m) {
    struct page_region found[REGIONS];
    uint64_t at = m->address, end = m->address + m->nbytes_mapped, huge = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), r = 0;
    if (fd < 0) return -errno;
    while (at < end) {
        uint64_t before = at;
        r = scan(fd, &at, end, 0, found);
        if (r < 0) break;
        for (int i = 0; i < r; i++)
            huge += found[i].end - found[i].start;
        if (at <= before) break;
    }
    close(fd);
    if (r < 0) return r;
    m->huge_bytes = huge;
    m->verified_by = UMSH_VERIFIED_PAGEMAP_SCAN;
    return 0;
}

/* A neighbour may have been merged into our entry: count only what cannot be the neighbour's. */
static size_t surely_ours(size_t huge, size_t entry, size_t ours) {
    size_t foreign = entry - ours;
    return huge > foreign ? huge - foreign : 0;
}

int umsh_pages_verify_smaps(umsh_mapping *m) {
    uint64_t start = m->address, end = start + m->nbytes_mapped, lo, hi, entry = 0, ours = 0, huge = 0, kib;
    char line[512];
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return -errno;
    m->huge_bytes = 0;
    while (fgets(line, sizeof line, f)) {
        char name[32];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &lo, &hi) == 2) {
            m->huge_bytes += surely_ours(huge, entry, ours);
            huge = 0;
            entry = hi - lo;
            ours = lo < end && hi > start ? (hi < end ? hi : end) - (lo > start ? lo : start) : 0;
        } else if (ours && sscanf(line, "%31[^:]: %" SCNu64, name, &kib) == 2) {
            if (!strcmp(name, "AnonHugePages") || !strcmp(name, "ShmemPmdMapped") ||
                !strcmp(name, "Private_Hugetlb") || !strcmp(name, "Shared_Hugetlb"))
                huge += kib << 10;
        }
    }
    m->huge_bytes += surely_ours(huge, entry, ours);
    fclose(f);
    m->verified_by = UMSH_VERIFIED_SMAPS;
    return 0;
}

int umsh_pages_verify(umsh_mapping *m) {
    if (!m->address) return -EINVAL;
    /* ENOTTY and EINVAL: before 6.7; EPERM, EACCES, ENOENT: a sandbox that hides pagemap. */
    return verify_scan(m) == 0 ? 0 : umsh_pages_verify_smaps(m);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Ask for huge pages once more, one huge page at a time until the deadline, then verify. Pages that are huge
 * already cost a call only. Returns 0 when everything possible is huge, -ETIMEDOUT, or the last -errno. */
int umsh_pages_collapse(umsh_mapping *m, int64_t timeout_ns) {
    int64_t deadline_ns = now_ns() + timeout_ns;
    size_t unit = umsh_pages_huge_bytes();
    int r = 0, verified;
    if (!m->address) return -EINVAL;
    for (size_t at = 0; at + unit <= m->huge_bytes_possible; at += unit) {
        if (now_ns() >= deadline_ns) {
            r = -ETIMEDOUT;
            break;
        }
        if (madvise((void *)(m->address + at), unit, MADV_COLLAPSE) != 0) r = -errno;
    }
    verified = umsh_pages_verify(m);
    return verified != 0 ? verified : m->huge_bytes >= m->huge_bytes_possible ? 0 : r;
}
