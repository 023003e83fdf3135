/* Seeded word pattern, litmus opcodes and their one interpreter, for C, OpenCL C and CUDA C++ alike.
 *
 * A program is int32 rows of four: {opcode | order << 8 | width << 16, location, register, value}.
 * A location is a byte offset inside the instance's slot; UMSH_IN_CONTROL moves it to the control memory.
 * Values are relative to the base of the instance. The base grows by UMSH_EPOCH each time a slot is used
 * again, so whatever an older instance left behind reads as 0, "initial", and nothing is ever reset.
 */
#ifndef UMSH_STEPS_H
#define UMSH_STEPS_H

#ifndef UMSH_FUNCTION
#define UMSH_FUNCTION static inline
#endif

typedef unsigned int umsh_u32;

/* Word i of the pattern with this seed: a 32-bit mix, a bijection of i for every seed. */
UMSH_FUNCTION umsh_u32 umsh_pattern(umsh_u32 seed, umsh_u32 i) {
    umsh_u32 x = i + seed * 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return x;
}

/* ---- litmus steps ---------------------------------------------------------------------------------- */

enum {
    UMSH_STEP_STORE = 1, UMSH_STEP_LOAD, UMSH_STEP_FENCE,
    UMSH_STEP_WRITE, UMSH_STEP_READ, UMSH_STEP_FILL, UMSH_STEP_CHECK, /* order field = write or read method */
    UMSH_STEP_ADD, UMSH_STEP_EXCHANGE, UMSH_STEP_CAS,               /* CAS value: expected | desired << 8 */
    UMSH_STEP_WAIT, UMSH_STEP_POLL,                                 /* until >= value: register 1, else 0 */
    UMSH_STEP_LOCK, UMSH_STEP_UNLOCK, UMSH_STEP_INCREMENT,            /* order field = lock algorithm */
    UMSH_STEP_WARM, UMSH_STEP_TRAFFIC, UMSH_STEP_RENDEZVOUS, UMSH_STEP_DELAY
};
/* SPLIT is the mutant of every access: not one access but two. */
enum {
    UMSH_ORDER_PLAIN, UMSH_ORDER_RELAXED, UMSH_ORDER_ACQUIRE, UMSH_ORDER_RELEASE, UMSH_ORDER_ACQ_REL,
    UMSH_ORDER_SEQ_CST, UMSH_ORDER_SPLIT
};
enum { UMSH_WIDTH_32, UMSH_WIDTH_64, UMSH_WIDTH_16_PAIR }; /* the last two: equal halves, two registers */
enum { UMSH_METHOD_WA, UMSH_METHOD_WF, UMSH_METHOD_WBP };
enum { UMSH_METHOD_RA, UMSH_METHOD_RI, UMSH_METHOD_RB };
enum { UMSH_STEP_TEST_THEN_SET = 7 }; /* the lock algorithm that is none: the mutant of every lock */

/* Settings: uint32 words. */
enum {
    UMSH_SET_STEPS,        /* rows of the program */
    UMSH_SET_REGISTERS,    /* registers of one instance of this role */
    UMSH_SET_SLOTS,        /* slots that instances take in turn */
    UMSH_SET_WORDS_SLOT,   /* bytes of one slot in `words` */
    UMSH_SET_CONTROL_SLOT, /* bytes of one slot in `control`, after its header */
    UMSH_SET_BASE,         /* base of the first UMSH_SET_SLOTS instances */
    UMSH_SET_SEED,         /* of delays and traffic */
    UMSH_SET_SPINS,        /* bound of one wait, in units of UMSH_SPIN_SCALE polls */
    UMSH_SET_GRACE,        /* polls that a wait makes after the partner's program has ended */
    UMSH_SET_SCRATCH,      /* byte offset in `words` of two traffic areas, one a role */
    UMSH_SET_SCRATCH_LINES,/* 128-byte lines of one traffic area, a power of two */
    UMSH_SET_PACE,         /* what one turn of a delay counts, so that turns of both agents last about as long */
    UMSH_SET_COUNT
};
enum { UMSH_EPOCH = 16, UMSH_IN_CONTROL = 1 << 30, UMSH_LINE = 128 };
/* The header of the control memory: one line each. DONE counts the instances a role has completed. */
enum {
    UMSH_CONTROL_ARRIVED = 0, UMSH_CONTROL_DONE = 2 * 128, UMSH_CONTROL_STOP = 4 * 128,
    UMSH_CONTROL_NOISE = 5 * 128, UMSH_CONTROL_HEADER = 8 * 128
};

#endif /* UMSH_STEPS_H */

#ifdef UMSH_STEPS_INTERPRETER
/* The includer defines, before including with UMSH_STEPS_INTERPRETER:
 *   UMSH_GLOBAL (address space of shared memory), umsh_u64, UMSH_SPIN_SCALE (polls per UMSH_SET_SPINS)
 *   step_load, step_store (32), step_load64, step_store64, step_store16, step_fence: by order. PLAIN is one
 *   access that the compiler may neither drop nor repeat (a loop of plain reads must reach the memory system)
 *   step_add, step_exchange, step_cas: seq_cst, return the old value
 *   step_write, step_read, step_fill, step_check: by method
 *   step_lock(word, algorithm, role, polls, stop word) -> 0 when taken, step_unlock: by algorithm
 *   step_relax(k): what a wait does after its k-th poll
 */
typedef UMSH_GLOBAL umsh_u32 *step_word;
typedef UMSH_GLOBAL unsigned char *step_bytes;

typedef struct {
    UMSH_GLOBAL const umsh_u32 *settings;
    step_bytes words, control, slot, control_slot;
    step_word registers;
    umsh_u32 role, instance, base, noise;
} step_state;

UMSH_FUNCTION umsh_u32 step_decode(const step_state *s, umsh_u32 raw) {
    int distance = (int)(raw - s->base);
    return distance < 0 ? 0u : (umsh_u32)distance;
}

UMSH_FUNCTION umsh_u32 step_decode16(const step_state *s, umsh_u32 raw) {
    int distance = (int)(short)(unsigned short)(raw - s->base);
    return distance < 0 ? 0u : (umsh_u32)distance;
}

UMSH_FUNCTION step_word step_header(const step_state *s, umsh_u32 offset, umsh_u32 role) {
    return (step_word)(s->control + offset + role * UMSH_LINE);
}

UMSH_FUNCTION step_bytes step_at(const step_state *s, int location) {
    if (location & UMSH_IN_CONTROL) return s->control_slot + (location & ~UMSH_IN_CONTROL);
    return s->slot + location;
}

/* Arithmetic that can be neither removed nor moved past other accesses: its result goes to the noise word. */
UMSH_FUNCTION void step_pause(step_state *s, umsh_u32 turns) {
    turns *= s->settings[UMSH_SET_PACE];
    for (umsh_u32 k = 0; k < turns; k++) s->noise = umsh_pattern(s->noise, k);
    step_store(step_header(s, UMSH_CONTROL_NOISE, s->role), s->noise, UMSH_ORDER_PLAIN);
}

UMSH_FUNCTION int step_stopped(const step_state *s) {
    return step_load(step_header(s, UMSH_CONTROL_STOP, 0), UMSH_ORDER_RELAXED) != 0;
}

UMSH_FUNCTION int step_stop(const step_state *s) {
    step_store(step_header(s, UMSH_CONTROL_STOP, 0), 1, UMSH_ORDER_RELAXED);
    return 0;
}

UMSH_FUNCTION umsh_u32 step_bound(const step_state *s) {
    return s->settings[UMSH_SET_SPINS] * UMSH_SPIN_SCALE;
}

/* Both roles meet. Relaxed unless the test initialises locations: an acquire here would refresh the very
 * lines that WARM made stale. */
UMSH_FUNCTION int step_rendezvous(step_state *s, umsh_u32 order) {
    umsh_u32 store = order == UMSH_ORDER_ACQ_REL ? UMSH_ORDER_RELEASE : UMSH_ORDER_RELAXED;
    umsh_u32 load = order == UMSH_ORDER_ACQ_REL ? UMSH_ORDER_ACQUIRE : UMSH_ORDER_RELAXED;
    umsh_u32 goal = s->instance + 1, bound = step_bound(s);
    step_store(step_header(s, UMSH_CONTROL_ARRIVED, s->role), goal, store);
    step_word partner = step_header(s, UMSH_CONTROL_ARRIVED, 1u - s->role);
    for (umsh_u32 k = 0; k < bound; k++) {
        if ((int)(step_load(partner, load) - goal) >= 0) return 1;
        if ((k & 63u) == 63u && step_stopped(s)) return 0;
        step_relax(k);
    }
    return step_stop(s);
}

/* Wait until the location reaches `value`. Gives up, with register 0, only after the partner's program has
 * ended and UMSH_SET_GRACE more polls saw nothing: being late is no failure, never arriving is. */
UMSH_FUNCTION int step_wait(step_state *s, step_word p, int by_method, umsh_u32 how, umsh_u32 value,
                            umsh_u32 *reached) {
    umsh_u32 bound = step_bound(s), late = 0;
    step_word done = step_header(s, UMSH_CONTROL_DONE, 1u - s->role);
    for (umsh_u32 k = 0; k < bound; k++) {
        umsh_u32 raw = by_method ? step_read(p, how) : step_load(p, how);
        *reached = (int)(raw - s->base - value) >= 0;
        if (*reached || late > s->settings[UMSH_SET_GRACE]) return 1;
        if (late || step_load(done, UMSH_ORDER_RELAXED) > s->instance) late++;
        if ((k & 63u) == 63u && step_stopped(s)) return 0;
        step_relax(k);
    }
    return step_stop(s);
}

UMSH_FUNCTION void step_store_wide(step_state *s, step_bytes p, umsh_u32 width, umsh_u32 order,
                                   umsh_u32 value) {
    umsh_u32 v = s->base + value, part = v & 0xFFFFu;
    if (width == UMSH_WIDTH_32) {
        step_store((step_word)p, v, order);
    } else if (width == UMSH_WIDTH_64) {
        if (order != UMSH_ORDER_SPLIT) {
            step_store64(p, (umsh_u64)v << 32 | v, order);
            return;
        }
        step_store((step_word)p, v, UMSH_ORDER_RELAXED);
        step_pause(s, 16);
        step_store((step_word)(p + 4), v, UMSH_ORDER_RELAXED);
    } else {
        if (order != UMSH_ORDER_SPLIT) {
            step_store((step_word)p, part << 16 | part, order);
            return;
        }
        step_store16(p, part);
        step_pause(s, 16);
        step_store16(p + 2, part);
    }
}

UMSH_FUNCTION void step_load_wide(step_state *s, step_bytes p, umsh_u32 width, umsh_u32 order,
                                  step_word reg) {
    if (width == UMSH_WIDTH_32) {
        reg[0] = step_decode(s, step_load((step_word)p, order));
    } else if (width == UMSH_WIDTH_64) {
        umsh_u64 v = step_load64(p, order);
        reg[0] = step_decode(s, (umsh_u32)v);
        reg[1] = step_decode(s, (umsh_u32)(v >> 32));
    } else {
        umsh_u32 v = step_load((step_word)p, order);
        reg[0] = step_decode16(s, v & 0xFFFFu);
        reg[1] = step_decode16(s, v >> 16);
    }
}

UMSH_FUNCTION umsh_u32 step_modify(step_state *s, umsh_u32 op, step_word p, umsh_u32 order,
                                   umsh_u32 value) {
    umsh_u32 expected = s->base + (value & 0xFFu), desired = s->base + (value >> 8 & 0xFFu), old;
    if (order != UMSH_ORDER_SPLIT) {
        if (op == UMSH_STEP_ADD) return step_add(p, value);
        if (op == UMSH_STEP_EXCHANGE) return step_exchange(p, s->base + value);
        return step_cas(p, expected, desired);
    }
    old = step_load(p, UMSH_ORDER_PLAIN);
    step_pause(s, 16);
    if (op == UMSH_STEP_ADD) step_store(p, old + value, UMSH_ORDER_PLAIN);
    else if (op == UMSH_STEP_EXCHANGE) step_store(p, s->base + value, UMSH_ORDER_PLAIN);
    else if (old == expected) step_store(p, desired, UMSH_ORDER_PLAIN);
    return old;
}

/* Plain increment, held open a little so that a lock that fails is seen failing. */
UMSH_FUNCTION umsh_u32 step_increment(step_state *s, step_word p) {
    umsh_u32 old = step_load(p, UMSH_ORDER_PLAIN);
    step_pause(s, 16);
    step_store(p, old + 1u, UMSH_ORDER_PLAIN);
    return old;
}

/* The lock of the mutants: it looks, then it sets. Bounded; on the bound it goes on without the lock. */
UMSH_FUNCTION void step_test_then_set(step_state *s, step_word p) {
    for (umsh_u32 k = 0; k < 4096u && step_load(p, UMSH_ORDER_ACQUIRE) != 0; k++) step_relax(k);
    step_pause(s, 16);
    step_store(p, 1, UMSH_ORDER_RELAXED);
}

UMSH_FUNCTION int step_take(step_state *s, step_word p, umsh_u32 algorithm) {
    if (algorithm == UMSH_STEP_TEST_THEN_SET) step_test_then_set(s, p);
    else if (step_lock(p, algorithm, s->role, step_bound(s), step_header(s, UMSH_CONTROL_STOP, 0)) != 0)
        return step_stop(s);
    return 1;
}

UMSH_FUNCTION void step_give(step_state *s, step_word p, umsh_u32 algorithm) {
    if (algorithm == UMSH_STEP_TEST_THEN_SET) step_store(p, 0, UMSH_ORDER_RELEASE);
    else step_unlock(p, algorithm, s->role);
}

UMSH_FUNCTION void step_warm(step_state *s, step_bytes p, umsh_u32 nbytes) {
    for (umsh_u32 k = 0; k < nbytes; k += 32u) s->noise ^= step_load((step_word)(p + k), UMSH_ORDER_PLAIN);
}

UMSH_FUNCTION void step_traffic(step_state *s, umsh_u32 accesses) {
    umsh_u32 lines = s->settings[UMSH_SET_SCRATCH_LINES];
    step_bytes area = s->words + s->settings[UMSH_SET_SCRATCH] + s->role * lines * UMSH_LINE;
    for (umsh_u32 k = 0; k < accesses; k++) {
        umsh_u32 line = umsh_pattern(s->settings[UMSH_SET_SEED] + s->instance, k) & (lines - 1u);
        step_word p = (step_word)(area + line * UMSH_LINE);
        step_store(p, step_load(p, UMSH_ORDER_PLAIN) + 1u, UMSH_ORDER_PLAIN);
    }
}

UMSH_FUNCTION void step_delay(step_state *s, umsh_u32 turns_max) {
    umsh_u32 seed = s->settings[UMSH_SET_SEED] + s->role;
    step_pause(s, umsh_pattern(seed, s->instance) % (turns_max + 1u));
}

/* One row; 0 when a bound ran out and the role must end. */
UMSH_FUNCTION int step_do(step_state *s, UMSH_GLOBAL const int *row) {
    umsh_u32 code = (umsh_u32)row[0], op = code & 0xFFu, how = code >> 8 & 0xFFu, width = code >> 16;
    step_bytes at = step_at(s, row[1]);
    step_word p = (step_word)at, reg = s->registers + row[2];
    umsh_u32 value = (umsh_u32)row[3], reached = 0;
    int alive = 1;
    switch (op) {
    case UMSH_STEP_STORE: step_store_wide(s, at, width, how, value); break;
    case UMSH_STEP_LOAD: step_load_wide(s, at, width, how, reg); break;
    case UMSH_STEP_FENCE: step_fence(how); break;
    case UMSH_STEP_WRITE: step_write(p, s->base + value, how); break;
    case UMSH_STEP_READ: reg[0] = step_decode(s, step_read(p, how)); break;
    case UMSH_STEP_FILL: step_fill(at, value, s->base + 1u, how); break;
    case UMSH_STEP_CHECK: reg[0] = step_check(at, value, s->base + 1u, how) != 0; break;
    case UMSH_STEP_ADD:
    case UMSH_STEP_EXCHANGE:
    case UMSH_STEP_CAS: reg[0] = step_decode(s, step_modify(s, op, p, how, value)); break;
    case UMSH_STEP_WAIT:
    case UMSH_STEP_POLL:
        alive = step_wait(s, p, op == UMSH_STEP_POLL, how, value, &reached);
        reg[0] = reached;
        break;
    case UMSH_STEP_LOCK: alive = step_take(s, p, how); break;
    case UMSH_STEP_UNLOCK: step_give(s, p, how); break;
    case UMSH_STEP_INCREMENT: reg[0] = step_decode(s, step_increment(s, p)); break;
    case UMSH_STEP_WARM: step_warm(s, at, value); break;
    case UMSH_STEP_TRAFFIC: step_traffic(s, value); break;
    case UMSH_STEP_RENDEZVOUS: alive = step_rendezvous(s, how); break;
    case UMSH_STEP_DELAY: step_delay(s, value); break;
    default: alive = step_stop(s); break;
    }
    return alive;
}

/* Run one role `instances` times; the DONE word of the role counts. Returns the instances completed. */
UMSH_FUNCTION umsh_u32 umsh_steps_interpret(UMSH_GLOBAL const int *program, step_bytes words,
                                            step_word registers, step_bytes control, umsh_u32 role,
                                            umsh_u32 instances, UMSH_GLOBAL const umsh_u32 *settings) {
    step_state s;
    s.settings = settings;
    s.words = words;
    s.control = control;
    s.role = role;
    s.noise = settings[UMSH_SET_SEED];
    for (umsh_u32 i = 0; i < instances; i++) {
        umsh_u32 slot = i % settings[UMSH_SET_SLOTS];
        s.instance = i;
        s.base = settings[UMSH_SET_BASE] + i / settings[UMSH_SET_SLOTS] * UMSH_EPOCH;
        s.slot = words + slot * settings[UMSH_SET_WORDS_SLOT];
        s.control_slot = control + UMSH_CONTROL_HEADER + slot * settings[UMSH_SET_CONTROL_SLOT];
        s.registers = registers + i * settings[UMSH_SET_REGISTERS];
        for (umsh_u32 k = 0; k < settings[UMSH_SET_STEPS]; k++) {
            if (!step_do(&s, program + 4u * k)) return i;
        }
        step_store(step_header(&s, UMSH_CONTROL_DONE, role), i + 1u, UMSH_ORDER_RELEASE);
    }
    return instances;
}
#endif /* UMSH_STEPS_INTERPRETER */
