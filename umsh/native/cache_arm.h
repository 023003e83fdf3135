/* cache_arm.h: aarch64 half of cache.c: dc cvac, dc civac and stnp, each completed by dsb sy.
 *
 * Arm ARM (DDI 0487) D7.5: EL0 may clean and clean-and-invalidate by address where SCTLR_EL1.UCI is set, as
 * Linux does. dc ivac is for EL1 and above, so it is never used. dsb sy, not ish: a GPU may observe from
 * outside the inner shareable domain. */
#define BYPASS_BYTES 64

static uintptr_t cache_line_bytes(void) {
    uint64_t ctr;
    __asm__("mrs %0, ctr_el0" : "=r"(ctr));
    return (uintptr_t)4 << (ctr >> 16 & 15); /* DminLine: log2 of words in the smallest data line */
}

static void wait_complete(void) { __asm__ volatile("dsb sy" ::: "memory"); }
static void writeback_begin(void) { wait_complete(); }
static void writeback_end(void) { wait_complete(); }
static void invalidate_end(void) { wait_complete(); }
static void bypass_end(void) { wait_complete(); }

static void writeback_range(uintptr_t p, uintptr_t end, uintptr_t line) {
    for (; p < end; p += line)
        __asm__ volatile("dc cvac, %0" ::"r"(p) : "memory");
}

static void invalidate_range(uintptr_t p, uintptr_t end, uintptr_t line) {
    wait_complete();
    for (; p < end; p += line)
        __asm__ volatile("dc civac, %0" ::"r"(p) : "memory");
}

/* stnp is a hint: a core may still keep the lines, so they are also written back. */
static void bypass_range(uintptr_t dst, uintptr_t src, size_t n) {
    uintptr_t from = src, to = dst, end = dst + n;
    while (to < end)
        __asm__ volatile("ldp q0, q1, [%0]\n ldp q2, q3, [%0, #32]\n"
                         "stnp q0, q1, [%1]\n stnp q2, q3, [%1, #32]\n"
                         "add %0, %0, #64\n add %1, %1, #64"
                         : "+r"(from), "+r"(to)::"v0", "v1", "v2", "v3", "memory");
    writeback_range(dst, end, cache_line_bytes());
}

void umsh_cache_describe(umsh_cache_facts *out) {
    out->line_bytes = (unsigned)cache_line_bytes();
    out->has_clflush = out->has_clflushopt = out->has_clwb = 0;
    out->has_nontemporal = 1;
    out->writeback = "dc cvac";
    out->invalidate = "dc civac";
    out->bypass = "stnp + dc cvac";
}
