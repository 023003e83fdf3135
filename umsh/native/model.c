/* model.c: memory of a modelled machine: caches, store buffers, coherence, methods. Every loop is bounded. */
#include "model.h"
#include "work.h"
#include "steps.h"

enum { LINE = 64, VALID = 1, DIRTY = 2, BUFFER_MAX = 16, UNHEARD_MAX = 64 };
enum { EVICT_ONE_IN = 64, PREFETCH_ONE_IN = 32 };
typedef umsh_model_world world;

/* The seeded adversary: the 48-bit linear congruence of POSIX drand48. */
uint64_t model_draw(world *w, uint64_t n) {
    w->chance = (w->chance * 25214903917u + 11u) & 0xFFFFFFFFFFFFu;
    return (w->chance >> 17) % n;
}

int model_faulty(const world *w, int fault) { return (w->faults & fault) != 0; }

static int coherent(const world *w, int a, int64_t m) {
    return w->memory[m].coherent[a] && !model_faulty(w, UMSH_MODEL_LIES);
}

static int64_t line_end(const umsh_model_memory *memory, int64_t line) {
    int64_t end = (line + 1) * LINE;
    return end < memory->nbytes ? end : memory->nbytes;
}

static void write_back(world *w, int a, int64_t m, int64_t line) {
    umsh_model_memory *memory = &w->memory[m];
    if (!(memory->marks[a][line] & DIRTY)) return;
    for (int64_t at = line * LINE; at < line_end(memory, line); at++)
        memory->home[at] = memory->images[a][at];
    memory->marks[a][line] = VALID;
}

/* Write back and invalidate: user space has no invalidation that throws a dirty line away. */
static void drop(world *w, int a, int64_t m, int64_t line) {
    write_back(w, a, m, line);
    w->memory[m].marks[a][line] = 0;
}

/* A coherent agent's access pulls the other's dirty line to memory first. */
static int snoop(world *w, int a, int64_t m, int64_t line) {
    if (!(w->memory[m].marks[1 - a][line] & DIRTY) || !coherent(w, a, m)) return 0;
    write_back(w, 1 - a, m, line);
    return 1;
}

static double fetch(world *w, int a, int64_t m, int64_t line) {
    umsh_model_memory *memory = &w->memory[m];
    if (memory->marks[a][line] & VALID) return w->cost[a][UMSH_MODEL_HIT];
    int pulled = snoop(w, a, m, line);
    for (int64_t at = line * LINE; at < line_end(memory, line); at++)
        memory->images[a][at] = memory->home[at];
    memory->marks[a][line] = VALID;
    return w->cost[a][pulled ? UMSH_MODEL_SNOOP : UMSH_MODEL_MISS];
}

/* Take notice of every line that the other agent has overwritten. */
static void hear(world *w, int a) {
    for (int64_t k = 0; k < w->heard[a]; k++) {
        uint8_t *mark = &w->memory[w->unheard[a][k][0]].marks[a][w->unheard[a][k][1]];
        if (!(*mark & DIRTY)) *mark = 0;
    }
    w->heard[a] = 0;
}

/* The other's copy of a line that a coherent agent overwrites is out of date; the GPU hears of it late. */
static void tell(world *w, int a, int64_t m, int64_t line) {
    int other = 1 - a;
    if (!(w->memory[m].marks[other][line] & VALID) || !coherent(w, a, m)) return;
    if (model_faulty(w, UMSH_MODEL_STALE) && model_draw(w, 2) == 0) return;
    if (other == MODEL_CPU) {
        drop(w, other, m, line);
        return;
    }
    write_back(w, other, m, line);
    if (w->heard[other] == UNHEARD_MAX) hear(w, other);
    w->unheard[other][w->heard[other]][0] = m;
    w->unheard[other][w->heard[other]][1] = line;
    w->heard[other]++;
}

/* A store inside one line reaches a's cache, or memory when it bypasses or is uncached. */
static void arrive(world *w, int a, int64_t m, int64_t at, int nbytes, uint64_t value, int through) {
    umsh_model_memory *memory = &w->memory[m];
    int64_t line = at / LINE;
    snoop(w, a, m, line);
    tell(w, a, m, line);
    if (through || !memory->cached[a]) {
        drop(w, a, m, line);
        for (int k = 0; k < nbytes; k++)
            memory->home[at + k] = (uint8_t)(value >> 8 * k);
        return;
    }
    if (w->heard[a]) hear(w, a); /* a line known to be overwritten must not be merged into */
    fetch(w, a, m, line);
    for (int k = 0; k < nbytes; k++)
        memory->images[a][at + k] = (uint8_t)(value >> 8 * k);
    memory->marks[a][line] = VALID | DIRTY;
}

static int overlaps(const umsh_model_entry *e, int64_t m, int64_t at, int64_t nbytes) {
    return e->memory == m && e->at < at + nbytes && at < e->at + e->nbytes;
}

static int may_go(const world *w, int a, int64_t k) {
    const umsh_model_entry *e = &w->buffer[a][k];
    int held = !model_faulty(w, UMSH_MODEL_REORDER);
    if (e->memory < 0 || ((e->how & 1) && held)) return k == 0;
    for (int64_t older = 0; older < k; older++) {
        const umsh_model_entry *o = &w->buffer[a][older];
        if (o->memory < 0 ? held : overlaps(o, e->memory, e->at, e->nbytes)) return 0;
    }
    return 1;
}

/* Let one store arrive: in order on a TSO agent, any that the rules let go on a weak one. */
static void drain_one(world *w, int a) {
    int64_t k = 0;
    if (a == MODEL_GPU || w->cpu_weak || model_faulty(w, UMSH_MODEL_REORDER)) {
        k = model_draw(w, 2) ? (int64_t)model_draw(w, (uint64_t)w->filled[a]) : w->filled[a] - 1;
        while (!may_go(w, a, k))
            k--; /* the oldest always may */
    }
    umsh_model_entry e = w->buffer[a][k];
    for (int64_t place = k; place + 1 < w->filled[a]; place++)
        w->buffer[a][place] = w->buffer[a][place + 1];
    w->filled[a]--;
    if (e.memory >= 0) arrive(w, a, e.memory, e.at, (int)e.nbytes, e.value, e.how & 2);
}

void model_drain(world *w, int a) {
    while (w->filled[a] > 0)
        drain_one(w, a);
}

/* Nothing on its way, nothing unheard: what is left is in caches and memory. */
void model_quiet(world *w, int a) {
    model_drain(w, a);
    hear(w, a);
}

static void put(world *w, int a, int64_t m, int64_t at, int nbytes, uint64_t value, int how) {
    while (w->filled[a] >= BUFFER_MAX)
        drain_one(w, a);
    w->buffer[a][w->filled[a]++] = (umsh_model_entry){m, at, nbytes, value, how};
}

/* The newest own store of exactly these bytes, or 0; partly overlapping ones arrive first. */
static const umsh_model_entry *forwarded(world *w, int a, int64_t m, int64_t at, int nbytes) {
    for (int64_t k = w->filled[a] - 1; k >= 0; k--) {
        const umsh_model_entry *e = &w->buffer[a][k];
        if (!overlaps(e, m, at, nbytes)) continue;
        if (e->at == at && e->nbytes == nbytes) return e;
        model_drain(w, a);
        return 0;
    }
    return 0;
}

void model_disturb(world *w, int a) {
    if (w->filled[a] > 0 && model_draw(w, 100) < 15) drain_one(w, a);
    if (w->heard[a] > 0 && model_draw(w, 100) < 10) hear(w, a);
}

static uint64_t bytes_at(const uint8_t *p, int nbytes) {
    uint64_t value = 0;
    for (int k = 0; k < nbytes; k++)
        value |= (uint64_t)p[k] << 8 * k;
    return value;
}

static int hears(int order) {
    return order == UMSH_ORDER_ACQUIRE || order == UMSH_ORDER_ACQ_REL || order == UMSH_ORDER_SEQ_CST;
}

/* The GPU's atomics and bypassing loads go to memory; the CPU's atomics go through its cache. */
double model_load(world *w, int a, int64_t m, int64_t at, int nbytes, int order, int bypass,
                  uint64_t *value) {
    umsh_model_memory *memory = &w->memory[m];
    const umsh_model_entry *own = forwarded(w, a, m, at, nbytes);
    int64_t line = at / LINE;
    double ns = w->cost[a][UMSH_MODEL_HIT];
    if (own) {
        *value = own->value;
    } else if (bypass || !memory->cached[a] || (a == MODEL_GPU && order != UMSH_ORDER_PLAIN)) {
        drop(w, a, m, line);
        ns = w->cost[a][snoop(w, a, m, line) ? UMSH_MODEL_SNOOP : UMSH_MODEL_UNCACHED];
        *value = bytes_at(memory->home + at, nbytes);
    } else {
        ns = fetch(w, a, m, line);
        *value = bytes_at(memory->images[a] + at, nbytes);
        if (model_draw(w, EVICT_ONE_IN) == 0)
            drop(w, a, m, line);
        else if (model_draw(w, PREFETCH_ONE_IN) == 0 && (line + 1) * LINE < memory->nbytes)
            fetch(w, a, m, line + 1);
    }
    if (hears(order)) hear(w, a);
    return ns;
}

double model_fence(world *w, int a, int order) {
    if (hears(order)) hear(w, a);
    if (!model_faulty(w, UMSH_MODEL_REORDER)) {
        if (order == UMSH_ORDER_SEQ_CST)
            model_drain(w, a);
        else if (order == UMSH_ORDER_RELEASE || order == UMSH_ORDER_ACQ_REL)
            put(w, a, -1, 0, 0, 0, 0);
    }
    return w->cost[a][UMSH_MODEL_FENCE];
}

double model_store(world *w, int a, int64_t m, int64_t at, int nbytes, uint64_t value, int order) {
    int release = order == UMSH_ORDER_RELEASE || order == UMSH_ORDER_ACQ_REL || order == UMSH_ORDER_SEQ_CST;
    int past = a == MODEL_GPU && order != UMSH_ORDER_PLAIN;
    put(w, a, m, at, nbytes, value, release | past << 1);
    double ns = w->cost[a][past || !w->memory[m].cached[a] ? UMSH_MODEL_UNCACHED : UMSH_MODEL_STORE];
    return order == UMSH_ORDER_SEQ_CST ? ns + model_fence(w, a, order) : ns;
}

/* kind 0: add first; 1: becomes first; 2: becomes second where it was first. */
uint32_t model_changed(uint32_t old, int kind, uint32_t first, uint32_t second) {
    if (kind == 0) return old + first;
    if (kind == 1) return first;
    return old == first ? second : old;
}

double model_modify(world *w, int a, int64_t m, int64_t at, int kind, uint32_t first, uint32_t second,
                    uint32_t *old) {
    uint64_t value;
    model_fence(w, a, UMSH_ORDER_SEQ_CST);
    model_drain(w, a);
    int past = a == MODEL_GPU || !w->memory[m].cached[a];
    double ns = model_load(w, a, m, at, 4, UMSH_ORDER_RELAXED, past, &value);
    *old = (uint32_t)value;
    arrive(w, a, m, at, 4, model_changed(*old, kind, first, second), past);
    return ns > w->cost[a][UMSH_MODEL_MODIFY] ? ns : w->cost[a][UMSH_MODEL_MODIFY];
}

static double flush(world *w, int a, int64_t m, int64_t at, int64_t nbytes, int64_t every) {
    int64_t first = at / LINE, lines = (at + nbytes + LINE - 1) / LINE - first, skipped = -1;
    model_drain(w, a);
    if (model_faulty(w, UMSH_MODEL_SKIPS) && lines > 1)
        skipped = first + (int64_t)model_draw(w, (uint64_t)((lines + every - 1) / every)) * every;
    for (int64_t line = first; line < first + lines; line += every)
        if (line != skipped) write_back(w, a, m, line);
    return (double)lines * w->cost[a][UMSH_MODEL_FLUSH];
}

double model_write(world *w, int a, int64_t m, int64_t at, uint32_t value, int method) {
    if (method == UMSH_METHOD_WBP) {
        put(w, a, m, at, 4, value, 2);
        return w->cost[a][UMSH_MODEL_UNCACHED];
    }
    double ns = model_store(w, a, m, at, 4, value, UMSH_ORDER_PLAIN);
    return method == UMSH_METHOD_WF ? ns + flush(w, a, m, at, 4, 1) : ns;
}

double model_read(world *w, int a, int64_t m, int64_t at, int method, uint64_t *value) {
    double ns = 0;
    if (method == UMSH_METHOD_RI) {
        model_drain(w, a);
        drop(w, a, m, at / LINE);
        ns = w->cost[a][UMSH_MODEL_FLUSH];
    }
    return ns + model_load(w, a, m, at, 4, UMSH_ORDER_PLAIN, method == UMSH_METHOD_RB, value);
}

/* every: one line in so many is followed. held: bytes that a's caches hold; what exceeds them is evicted. */
void model_fill(world *w, int a, int64_t m, int64_t at, int64_t nbytes, uint32_t seed, int method,
                int64_t every, int64_t held) {
    int64_t stop = at + nbytes;
    model_drain(w, a);
    for (int64_t line = at / LINE; line * LINE < stop; line += every) {
        int64_t start = line * LINE > at ? line * LINE : at;
        int64_t end = (line + 1) * LINE < stop ? (line + 1) * LINE : stop;
        for (int64_t p = start; p < end; p += 4)
            arrive(w, a, m, p, end - p < 4 ? (int)(end - p) : 4,
                   umsh_pattern_word(seed, (uint32_t)((p - at) / 4)), method == UMSH_METHOD_WBP);
        if (end < stop - held) drop(w, a, m, line);
    }
    if (method == UMSH_METHOD_WF) flush(w, a, m, at, nbytes, every);
}

/* Words that differ from the pattern. */
int64_t model_check(world *w, int a, int64_t m, int64_t at, int64_t nbytes, uint32_t seed, int method,
                    int64_t every) {
    umsh_model_memory *memory = &w->memory[m];
    int past = method == UMSH_METHOD_RB || !memory->cached[a];
    int64_t stop = at + nbytes, wrong = 0;
    model_drain(w, a);
    for (int64_t line = at / LINE; line * LINE < stop; line += every) {
        int64_t start = line * LINE > at ? line * LINE : at;
        int64_t end = (line + 1) * LINE < stop ? (line + 1) * LINE : stop;
        if (past || method == UMSH_METHOD_RI) drop(w, a, m, line);
        if (past)
            snoop(w, a, m, line);
        else
            fetch(w, a, m, line);
        const uint8_t *seen = past ? memory->home : memory->images[a];
        for (int64_t p = start; p < end; p += 4) {
            int n = end - p < 4 ? (int)(end - p) : 4;
            uint64_t right = umsh_pattern_word(seed, (uint32_t)((p - at) / 4)) & ((1ull << 8 * n) - 1);
            wrong += bytes_at(seen + p, n) != right;
        }
    }
    return wrong;
}

void model_warm(world *w, int a, int64_t m, int64_t at, int64_t nbytes) {
    if (!w->memory[m].cached[a]) return;
    for (int64_t line = at / LINE; line * LINE < at + nbytes; line++)
        fetch(w, a, m, line);
}

/* The driver's work between kernels: stores arrive, the GPU's caches are written back and emptied. */
void umsh_model_settle(world *w, int a) {
    model_drain(w, a);
    hear(w, a);
    if (a != MODEL_GPU) return;
    for (int64_t m = 0; m < UMSH_MODEL_MEMORIES; m++) {
        umsh_model_memory *memory = &w->memory[m];
        for (int64_t line = 0; line * LINE < memory->nbytes; line++) {
            if (!memory->marks[a][line]) continue;
            if (memory->marks[a][line] & DIRTY) tell(w, a, m, line);
            drop(w, a, m, line);
        }
    }
}

void umsh_model_fill(world *w, int a, int64_t at, int64_t nbytes, uint32_t seed, int method, int64_t every,
                     int64_t held) {
    model_fill(w, a, 0, at, nbytes, seed, method, every, held);
}

int64_t umsh_model_check(world *w, int a, int64_t at, int64_t nbytes, uint32_t seed, int method,
                         int64_t every) {
    return model_check(w, a, 0, at, nbytes, seed, method, every);
}

uint32_t umsh_model_gather(world *w, int a, int64_t count, uint32_t seed, int64_t stride, int method) {
    uint32_t total = 0;
    model_drain(w, a);
    for (int64_t i = 0; i < count; i++) {
        uint64_t value;
        int64_t place = umsh_pattern_word(seed, (uint32_t)i) % (w->memory[0].nbytes / stride);
        model_read(w, a, 0, place * stride, method, &value);
        total += (uint32_t)value;
    }
    return total;
}
