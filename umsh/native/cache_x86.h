/* cache_x86.h: x86-64 half of cache.c: clwb, clflushopt or clflush as CPUID has them, and movntdq.
 *
 * Ordering (Intel SDM volume 2): clflushopt and clwb need sfence before later stores and mfence before later
 * loads; clflush is ordered by itself. movntdqa is no read-bypass here: on write-back memory it is a load. */
#include <cpuid.h>
#include <immintrin.h>

#define BYPASS_BYTES 64

typedef void (*range_fn)(uintptr_t p, uintptr_t end, uintptr_t line);

static struct {
    unsigned line_bytes;
    int has_clflush, has_clflushopt, has_clwb;
    range_fn writeback, invalidate;
} cpu;

static void range_clflush(uintptr_t p, uintptr_t end, uintptr_t line) {
    for (; p < end; p += line)
        _mm_clflush((const void *)p);
}

__attribute__((target("clflushopt"))) static void range_clflushopt(uintptr_t p, uintptr_t end,
                                                                   uintptr_t line) {
    for (; p < end; p += line)
        _mm_clflushopt((void *)p);
}

__attribute__((target("clwb"))) static void range_clwb(uintptr_t p, uintptr_t end, uintptr_t line) {
    for (; p < end; p += line)
        _mm_clwb((void *)p);
}

__attribute__((constructor)) static void ask_cpu(void) {
    unsigned a, b = 0, c, d = 0;
    __cpuid(1, a, b, c, d);
    cpu.has_clflush = d >> 19 & 1;
    cpu.line_bytes = cpu.has_clflush ? (b >> 8 & 0xff) * 8 : 64;
    b = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    cpu.has_clflushopt = b >> 23 & 1;
    cpu.has_clwb = b >> 24 & 1;
    cpu.invalidate = cpu.has_clflushopt ? range_clflushopt : range_clflush;
    cpu.writeback = cpu.has_clwb ? range_clwb : cpu.invalidate;
}

static uintptr_t cache_line_bytes(void) { return cpu.line_bytes; }
static void writeback_begin(void) {}
static void writeback_range(uintptr_t p, uintptr_t end, uintptr_t line) { cpu.writeback(p, end, line); }
static void writeback_end(void) { _mm_sfence(); }
static void invalidate_range(uintptr_t p, uintptr_t end, uintptr_t line) { cpu.invalidate(p, end, line); }
static void invalidate_end(void) { _mm_mfence(); }
static void bypass_end(void) { _mm_sfence(); }

/* One whole line a turn: a write-combining buffer that is filled at once leaves as one burst. */
static void bypass_range(uintptr_t dst, uintptr_t src, size_t n) {
    for (size_t i = 0; i < n; i += BYPASS_BYTES) {
        const __m128i *s = (const __m128i *)(src + i);
        __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
        __m128i c = _mm_loadu_si128(s + 2), d = _mm_loadu_si128(s + 3);
        __m128i *t = (__m128i *)(dst + i);
        _mm_stream_si128(t, a);
        _mm_stream_si128(t + 1, b);
        _mm_stream_si128(t + 2, c);
        _mm_stream_si128(t + 3, d);
    }
}

void umsh_cache_describe(umsh_cache_facts *out) {
    out->line_bytes = cpu.line_bytes;
    out->has_clflush = cpu.has_clflush;
    out->has_clflushopt = cpu.has_clflushopt;
    out->has_clwb = cpu.has_clwb;
    out->has_nontemporal = 1;
    out->invalidate = cpu.has_clflushopt ? "clflushopt" : "clflush";
    out->writeback = cpu.has_clwb ? "clwb" : out->invalidate;
    out->bypass = "movntdq";
}
