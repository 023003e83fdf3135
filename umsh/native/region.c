/* region.c: a write and a read method as the two functions of a region. */
#include "region.h"

#include "cache.h"
#include "work.h"

static uintptr_t at(const umsh_region *region, size_t offset) { return (uintptr_t)region->cpu + offset; }

/* Write-alone and read-alone: the release and acquire around them are all that is needed. */
static void nothing(const umsh_region *region, size_t offset, size_t n) {
    (void)region, (void)offset, (void)n;
}

/* Also for write-bypass: native code has written by ordinary stores, so its lines are written back. */
static void write_back(const umsh_region *region, size_t offset, size_t n) {
    umsh_writeback_lines(at(region, offset), n);
}

static void invalidate(const umsh_region *region, size_t offset, size_t n) {
    umsh_invalidate_lines(at(region, offset), n);
}

/* Methods as UMSH_WRITE_* and UMSH_READ_* of work.h. */
void umsh_region_describe(umsh_region *out, uintptr_t cpu, uint64_t device, size_t nbytes, int write_method,
                          int read_method) {
    out->cpu = (void *)cpu;
    out->device = device;
    out->nbytes = nbytes;
    out->publish = write_method == UMSH_WRITE_ALONE ? nothing : write_back;
    out->refresh = read_method == UMSH_READ_INVALIDATE ? invalidate : nothing;
}
