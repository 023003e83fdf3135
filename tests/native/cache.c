/* cache.c: cache maintenance and bypassing copies keep every byte, at any address and length. */
#include "cache.h"

#include <stdlib.h>

#include "check.h"
#include "work.h"

static void copies(void) {
    unsigned char *from = aligned_alloc(128, 1024), *to = aligned_alloc(128, 1024);
    for (int i = 0; i < 1024; i++)
        from[i] = (unsigned char)(i * 7 + 1);
    for (size_t offset = 0; offset < 70; offset += 3)
        for (size_t n = 0; n < 300; n += 7) {
            memset(to, 0xEE, 1024);
            umsh_copy_bypass((uintptr_t)to + 64 + offset, (uintptr_t)from + 5, n);
            CHECK(memcmp(to + 64 + offset, from + 5, n) == 0);
            CHECK(to[64 + offset - 1] == 0xEE && to[64 + offset + n] == 0xEE);
            umsh_writeback_lines((uintptr_t)to + offset, n);
            umsh_invalidate_lines((uintptr_t)to + offset, n);
            CHECK(memcmp(to + 64 + offset, from + 5, n) == 0);
        }
    umsh_copy((uintptr_t)to, (uintptr_t)from, 1024);
    CHECK(memcmp(to, from, 1024) == 0);
    free(from);
    free(to);
}

static void patterns(void) {
    size_t nbytes = 40004; /* neither whole lines nor whole blocks */
    uint32_t *p = aligned_alloc(128, 40064), sum = 0;
    for (int method = UMSH_WRITE_ALONE; method <= UMSH_WRITE_BYPASS; method++) {
        memset(p, 0xEE, 40064);
        umsh_fill((uintptr_t)p, nbytes, 3, method);
        CHECK(umsh_check((uintptr_t)p, nbytes, 3, UMSH_READ_ALONE) == 0);
        CHECK(umsh_check((uintptr_t)p, nbytes, 3, UMSH_READ_INVALIDATE) == 0);
        CHECK(p[nbytes / 4] == 0xEEEEEEEE);
    }
    CHECK(umsh_check((uintptr_t)p, nbytes, 4, UMSH_READ_ALONE) == nbytes / 4);
    p[77] ^= 1;
    CHECK(umsh_check((uintptr_t)p, nbytes, 3, UMSH_READ_INVALIDATE) == 1);
    p[77] ^= 1;
    for (uint32_t k = 0; k < 50; k++)
        sum += umsh_pattern_word(3, umsh_pattern_word(9, k) % 312 * 32);
    CHECK(umsh_gather((uintptr_t)p, nbytes, 50, 9, 128, UMSH_READ_ALONE) == sum);
    CHECK(umsh_gather((uintptr_t)p, nbytes, 50, 9, 128, UMSH_READ_INVALIDATE) == sum);
    CHECK(umsh_gather((uintptr_t)p, 4, 50, 9, 128, UMSH_READ_ALONE) == 0);
    free(p);
}

int main(void) {
    umsh_cache_facts facts;
    umsh_cache_describe(&facts);
    CHECK(facts.line_bytes >= 16 && (facts.line_bytes & (facts.line_bytes - 1)) == 0);
    CHECK(facts.writeback[0] && facts.invalidate[0] && facts.bypass[0]);
    copies();
    patterns();
    return finish();
}
