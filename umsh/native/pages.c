/* pages.c: map, prefault and unmap; all return 0 or -errno. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prefault.h"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif
#define HUGE_SHIFT 26 /* MAP_HUGE_SHIFT and MFD_HUGE_SHIFT */

static size_t huge_page_bytes;

/* The PMD size: 2 MiB on x86-64 and with 4 KiB pages on aarch64, but 512 MiB with 64 KiB pages. */
__attribute__((constructor)) static void ask_huge_page_bytes(void) {
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "re");
    unsigned long n = 0;
    if (f) {
        if (fscanf(f, "%lu", &n) != 1) n = 0;
        fclose(f);
    }
    huge_page_bytes = n && (n & (n - 1)) == 0 ? n : (size_t)2 << 20;
}

size_t umsh_pages_huge_bytes(void) { return huge_page_bytes; }

static size_t base_page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

static int huge_flag(void) { return __builtin_ctzl(huge_page_bytes) << HUGE_SHIFT; }

/* Fill in what is known before any page is mapped; -EINVAL for a size or kind that cannot be. */
static int plan(size_t nbytes, int kind, umsh_mapping *m) {
    size_t unit = kind == UMSH_PAGES_HUGETLB ? huge_page_bytes : base_page_bytes();
    memset(m, 0, sizeof *m);
    if (nbytes == 0 || nbytes > PTRDIFF_MAX - 2 * huge_page_bytes) return -EINVAL;
    if (kind < UMSH_PAGES_4K || kind > UMSH_PAGES_HUGETLB) return -EINVAL;
    m->nbytes = nbytes;
    m->nbytes_mapped = round_up(nbytes, unit);
    m->requested = kind;
    m->huge_bytes_possible = kind == UMSH_PAGES_4K ? 0 : m->nbytes_mapped & ~(huge_page_bytes - 1);
    m->page_bytes = m->huge_bytes_possible ? huge_page_bytes : base_page_bytes();
    return 0;
}

/* Map on a huge page boundary: reserve one huge page more of address space, give both ends back, map over it.
 */
static void *map_aligned(size_t nbytes, int flags, int fd) {
    size_t extra = huge_page_bytes - base_page_bytes(), head;
    char *p = mmap(NULL, nbytes + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *mapped;
    if (p == MAP_FAILED) return p;
    head = -(uintptr_t)p & (huge_page_bytes - 1);
    if (head) munmap(p, head);
    if (head < extra) munmap(p + head + nbytes, extra - head);
    mapped = mmap(p + head, nbytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    if (mapped == MAP_FAILED) {
        int error = errno;
        munmap(p + head, nbytes);
        errno = error;
    }
    return mapped;
}

static int map_fd(umsh_mapping *m, int flags, int fd, int prefault) {
    int huge = m->huge_bytes_possible != 0, r = 0;
    void *p;
    if (huge && m->requested == UMSH_PAGES_THP)
        p = map_aligned(m->nbytes_mapped, flags, fd);
    else
        p = mmap(NULL, m->nbytes_mapped, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED) return -errno;
    m->address = (uintptr_t)p;
    /* EINVAL: a kernel without THP; then there is nothing to ask for or to refuse, and verify tells. */
    if (m->requested == UMSH_PAGES_THP && huge) madvise(p, m->nbytes_mapped, MADV_HUGEPAGE);
    if (m->requested == UMSH_PAGES_4K && m->nbytes_mapped >= huge_page_bytes)
        madvise(p, m->nbytes_mapped, MADV_NOHUGEPAGE);
    if (prefault) r = umsh_prefault(p, m->nbytes_mapped, huge_page_bytes);
    if (r != 0) umsh_pages_unmap(m);
    return r;
}

int umsh_pages_map(size_t nbytes, int kind, int prefault, umsh_mapping *out) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, r = plan(nbytes, kind, out);
    if (r != 0) return r;
    if (kind == UMSH_PAGES_HUGETLB) flags |= MAP_HUGETLB | huge_flag();
    return map_fd(out, flags, -1, prefault);
}

/* The size is sealed: a process that attaches can never meet SIGBUS because another one shrank it. */
int umsh_pages_map_shared(size_t nbytes, int *fd, int kind, umsh_mapping *out) {
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int r = plan(nbytes, kind, out);
    *fd = -1;
    if (r != 0) return r;
    if (kind == UMSH_PAGES_HUGETLB) flags |= MFD_HUGETLB | (unsigned)huge_flag();
    *fd = memfd_create("umsh", flags);
    if (*fd < 0) return -errno;
    if (ftruncate(*fd, (off_t)out->nbytes_mapped) != 0 ||
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        r = -errno;
    else
        r = map_fd(out, MAP_SHARED, *fd, 1);
    if (r != 0) {
        close(*fd);
        *fd = -1;
    }
    return r;
}

/* Map what another process made by umsh_pages_map_shared, of the same kind; -ERANGE when the file is smaller.
 */
int umsh_pages_attach(int fd, size_t nbytes, int kind, umsh_mapping *out) {
    struct stat st;
    int r;
    memset(out, 0, sizeof *out);
    if (fstat(fd, &st) != 0) return -errno;
    if (nbytes == 0 || (uint64_t)st.st_size < nbytes) return -ERANGE;
    if ((size_t)st.st_blksize == huge_page_bytes) kind = UMSH_PAGES_HUGETLB; /* only hugetlbfs says so */
    r = plan(nbytes, kind, out);
    return r != 0 ? r : map_fd(out, MAP_SHARED, fd, 0);
}

/* Idempotent. */
int umsh_pages_unmap(umsh_mapping *m) {
    int r = 0;
    if (m->address && munmap((void *)m->address, m->nbytes_mapped) != 0) r = -errno;
    if (r == 0) memset(m, 0, sizeof *m);
    return r;
}
