/* model_steps.c: litmus programs of device/steps.h and locks on a modelled machine, an event at a time. */
#include "model.h"
#include "steps.h"
#include "umsh.h"

enum { STAY, NEXT, QUIT };
enum {
    POLLS_MAX = 20000,
    POLLS_BUSY = 256,
    JITTER_NS = 150,
    WAKEUP_LOSS_ONE_IN = 16,
    TEST_THEN_SET_POLLS = 64
};
enum { LOCK_NEXT = 128, LOCK_SERVING = 256, LOCK_TURN = 384, LOCK_SIDE = 4 };
typedef umsh_model_world world;
typedef umsh_model_job job;

/* Where one row acts: memory and byte, and its decoded parts. */
typedef struct {
    int op, how, half;
    int64_t m, at;
    uint32_t reg, value;
} row;

static double cost(const world *w, const job *j, int event) { return w->cost[j->agent][event]; }

static uint32_t base_of(const job *j) {
    int64_t turns = j->instance / j->settings[UMSH_SET_SLOTS];
    return j->settings[UMSH_SET_BASE] + (uint32_t)(turns * j->epoch);
}

static uint32_t *reg_of(const job *j, uint32_t reg) {
    return j->registers + j->instance * j->settings[UMSH_SET_REGISTERS] + reg;
}

static void observe(const job *j, uint32_t reg, uint64_t raw, int bits) {
    uint32_t distance = (uint32_t)raw - base_of(j);
    int32_t seen = bits == 16 ? (int16_t)distance : (int32_t)distance;
    *reg_of(j, reg) = seen < 0 ? 0u : (uint32_t)seen;
}

static void tell_header(world *w, job *j, int place, int64_t role, uint32_t value, int order) {
    model_store(w, (int)j->agent, j->control, place + role * UMSH_LINE, 4, value, order);
}

static uint32_t header(world *w, job *j, int place, int64_t role, int order) {
    uint64_t value;
    model_load(w, (int)j->agent, j->control, place + role * UMSH_LINE, 4, order, 0, &value);
    return (uint32_t)value;
}

/* First often, then seldom, so that a vain wait costs few events. */
static double poll_ns(const world *w, const job *j) {
    return cost(w, j, j->polls >= POLLS_BUSY ? UMSH_MODEL_IDLE : UMSH_MODEL_POLL);
}

static int do_store(world *w, job *j, const row *r, double *ns) {
    int a = (int)j->agent, half = r->half;
    uint64_t value = base_of(j) + r->value, part = (uint32_t)value & ((1ull << 8 * half) - 1);
    *ns = cost(w, j, UMSH_MODEL_STORE);
    if (!half) {
        if (r->how == UMSH_ORDER_RELEASE && model_faulty(w, UMSH_MODEL_LOST) &&
            model_draw(w, WAKEUP_LOSS_ONE_IN) == 0)
            return NEXT;
        *ns = model_store(w, a, r->m, r->at, 4, (uint32_t)value, r->how);
        return NEXT;
    }
    if (r->how == UMSH_ORDER_SPLIT) {
        model_store(w, a, r->m, r->at + half * j->phase, half, part, UMSH_ORDER_RELAXED);
        *ns = cost(w, j, UMSH_MODEL_PAUSE);
        return ++j->phase == 2 ? NEXT : STAY;
    }
    if (model_faulty(w, UMSH_MODEL_TORN)) {
        model_store(w, a, r->m, r->at, half, part, r->how);
        model_store(w, a, r->m, r->at + half, half, part, r->how);
    } else {
        *ns = model_store(w, a, r->m, r->at, 2 * half, part << 8 * half | part, r->how);
    }
    return NEXT;
}

static int do_load(world *w, job *j, const row *r, double *ns) {
    uint64_t raw;
    *ns = model_load(w, (int)j->agent, r->m, r->at, r->half ? 2 * r->half : 4, r->how, 0, &raw);
    if (!r->half) {
        observe(j, r->reg, raw, 32);
    } else {
        uint64_t mask = (1ull << 8 * r->half) - 1;
        observe(j, r->reg, raw & mask, 8 * r->half);
        observe(j, r->reg + 1, raw >> 8 * r->half, 8 * r->half);
    }
    return NEXT;
}

/* One read-modify-write: one event, or two when split or at fault. 1 when done. */
static int swap(world *w, job *j, int64_t m, int64_t at, int kind, uint32_t first, uint32_t second, int split,
                uint32_t *old, double *ns) {
    uint64_t value;
    if (!split && !model_faulty(w, UMSH_MODEL_NONATOMIC)) {
        *ns = model_modify(w, (int)j->agent, m, at, kind, first, second, old);
        return 1;
    }
    int load = split ? UMSH_ORDER_PLAIN : UMSH_ORDER_ACQUIRE,
        store = split ? UMSH_ORDER_PLAIN : UMSH_ORDER_SEQ_CST;
    if (j->phase == 0) {
        model_load(w, (int)j->agent, m, at, 4, load, 0, &value);
        j->kept = (int64_t)value;
        j->phase = 1;
        *ns = cost(w, j, UMSH_MODEL_PAUSE);
        return 0;
    }
    *old = (uint32_t)j->kept;
    *ns = model_store(w, (int)j->agent, m, at, 4, model_changed(*old, kind, first, second), store);
    j->phase = 0;
    return 1;
}

static int do_modify(world *w, job *j, const row *r, double *ns) {
    uint32_t base = base_of(j), first = r->value, second = 0, old;
    if (r->op == UMSH_STEP_EXCHANGE) first = base + r->value;
    if (r->op == UMSH_STEP_CAS) {
        first = base + (r->value & 0xFFu);
        second = base + (r->value >> 8 & 0xFFu);
    }
    int done =
        swap(w, j, r->m, r->at, r->op - UMSH_STEP_ADD, first, second, r->how == UMSH_ORDER_SPLIT, &old, ns);
    if (done) observe(j, r->reg, old, 32);
    return done ? NEXT : STAY;
}

/* Plain, held open a little so that a lock that fails is seen failing. */
static int do_increment(world *w, job *j, const row *r, double *ns) {
    uint64_t value;
    if (j->phase == 0) {
        *ns = model_load(w, (int)j->agent, r->m, r->at, 4, UMSH_ORDER_PLAIN, 0, &value) +
              cost(w, j, UMSH_MODEL_PAUSE);
        j->kept = (int64_t)value;
        j->phase = 1;
        return STAY;
    }
    *ns = model_store(w, (int)j->agent, r->m, r->at, 4, (uint32_t)j->kept + 1, UMSH_ORDER_PLAIN);
    observe(j, r->reg, (uint64_t)j->kept, 32);
    return NEXT;
}

/* Gives up, register 0, only after the partner's program has ended and the grace ran out. */
static int do_wait(world *w, job *j, const row *r, double *ns) {
    uint64_t raw;
    int a = (int)j->agent;
    if (r->op == UMSH_STEP_POLL)
        *ns = model_read(w, a, r->m, r->at, r->how, &raw);
    else
        *ns = model_load(w, a, r->m, r->at, 4, r->how, 0, &raw);
    int reached = (int32_t)((uint32_t)raw - base_of(j) - r->value) >= 0;
    *reg_of(j, r->reg) = (uint32_t)reached;
    if (reached || j->late > j->settings[UMSH_SET_GRACE]) {
        *ns += (double)j->round_ns;
        return NEXT;
    }
    if (j->late ||
        (!j->bare && header(w, j, UMSH_CONTROL_DONE, 1 - j->role, UMSH_ORDER_RELAXED) > j->instance))
        j->late++;
    j->polls++;
    *ns += poll_ns(w, j);
    return j->polls >= POLLS_MAX ? QUIT : STAY;
}

static int do_rendezvous(world *w, job *j, const row *r, double *ns) {
    int both = r->how == UMSH_ORDER_ACQ_REL;
    *ns = cost(w, j, UMSH_MODEL_STORE);
    if (j->phase == 0) {
        j->phase = 1;
        tell_header(w, j, UMSH_CONTROL_ARRIVED, j->role, (uint32_t)j->instance + 1,
                    both ? UMSH_ORDER_RELEASE : UMSH_ORDER_RELAXED);
        return STAY;
    }
    int order = both ? UMSH_ORDER_ACQUIRE : UMSH_ORDER_RELAXED;
    if (header(w, j, UMSH_CONTROL_ARRIVED, 1 - j->role, order) > j->instance) return NEXT;
    j->polls++;
    *ns = poll_ns(w, j);
    return j->polls >= POLLS_MAX || header(w, j, UMSH_CONTROL_STOP, 0, UMSH_ORDER_RELAXED) ? QUIT : STAY;
}

static int do_traffic(world *w, job *j, uint32_t accesses, double *ns) {
    int64_t lines = j->settings[UMSH_SET_SCRATCH_LINES];
    int64_t area = j->settings[UMSH_SET_SCRATCH] + j->role * lines * UMSH_LINE;
    uint64_t old;
    for (uint32_t k = 0; k < accesses; k++) {
        int64_t place = area + (int64_t)model_draw(w, (uint64_t)lines) * UMSH_LINE;
        *ns += model_load(w, (int)j->agent, j->words, place, 4, UMSH_ORDER_PLAIN, 0, &old);
        model_store(w, (int)j->agent, j->words, place, 4, (uint32_t)old + 1, UMSH_ORDER_PLAIN);
    }
    return NEXT;
}

/* ---- locks ---- */

static int vain(world *w, job *j, double *ns) {
    *ns += poll_ns(w, j);
    return ++j->polls >= POLLS_MAX ? QUIT : STAY;
}

static int take_test_then_set(world *w, job *j, const row *r, double *ns) {
    uint64_t held;
    if (j->phase == 0) {
        *ns = model_load(w, (int)j->agent, r->m, r->at, 4, UMSH_ORDER_ACQUIRE, 0, &held);
        *ns += cost(w, j, UMSH_MODEL_PAUSE);
        if (!held || ++j->polls >= TEST_THEN_SET_POLLS) j->phase = 1;
        return STAY;
    }
    *ns = model_store(w, (int)j->agent, r->m, r->at, 4, 1, UMSH_ORDER_RELAXED);
    return NEXT;
}

static int take_ticket(world *w, job *j, const row *r, double *ns) {
    uint64_t serving;
    uint32_t ticket;
    if (!j->side) {
        if (swap(w, j, r->m, r->at + LOCK_NEXT, 0, 1, 0, 0, &ticket, ns)) {
            j->kept = ticket;
            j->side = 1;
        }
        return STAY;
    }
    *ns = model_load(w, (int)j->agent, r->m, r->at + LOCK_SERVING, 4, UMSH_ORDER_ACQUIRE, 0, &serving);
    if ((int64_t)serving != j->kept) return vain(w, j, ns);
    j->side = 0;
    return NEXT;
}

/* Threads of one side settle by compare-exchange among themselves, the two sides by loads and stores. */
static int take_peterson(world *w, job *j, const row *r, double *ns) {
    int a = (int)j->agent;
    int64_t mine = r->at + (1 + a) * UMSH_LINE, theirs = r->at + (2 - a) * UMSH_LINE;
    uint64_t wants, turn;
    uint32_t old;
    if (!j->side) {
        if (!swap(w, j, r->m, mine + LOCK_SIDE, 2, 0, 1, 0, &old, ns)) return STAY;
        if (old) return vain(w, j, ns);
        j->side = 1;
        return STAY;
    }
    if (j->phase == 0) {
        *ns = model_store(w, a, r->m, mine, 4, 1, UMSH_ORDER_SEQ_CST);
        *ns += model_store(w, a, r->m, r->at + LOCK_TURN, 4, (uint64_t)(1 - a), UMSH_ORDER_SEQ_CST);
        j->phase = 1;
        return STAY;
    }
    *ns = model_load(w, a, r->m, theirs, 4, UMSH_ORDER_SEQ_CST, 0, &wants);
    *ns += model_load(w, a, r->m, r->at + LOCK_TURN, 4, UMSH_ORDER_SEQ_CST, 0, &turn);
    if (wants && turn == (uint64_t)(1 - a)) return vain(w, j, ns);
    j->side = 0;
    return NEXT;
}

static int take(world *w, job *j, const row *r, double *ns) {
    uint32_t old;
    if (r->how == UMSH_STEP_TEST_THEN_SET) return take_test_then_set(w, j, r, ns);
    if (r->how == UMSH_LOCK_TICKET) return take_ticket(w, j, r, ns);
    if (r->how == UMSH_LOCK_PETERSON) return take_peterson(w, j, r, ns);
    if (!swap(w, j, r->m, r->at, 2, 0, 1, 0, &old, ns)) return STAY;
    return old ? vain(w, j, ns) : NEXT;
}

static int give(world *w, job *j, const row *r, double *ns) {
    int a = (int)j->agent;
    int64_t at = r->at;
    uint64_t value = 0;
    if (r->how == UMSH_LOCK_TICKET) {
        at += LOCK_SERVING;
        model_load(w, a, r->m, at, 4, UMSH_ORDER_RELAXED, 0, &value);
        value = (uint32_t)value + 1;
    } else if (r->how == UMSH_LOCK_PETERSON) {
        model_store(w, a, r->m, at + (1 + a) * UMSH_LINE, 4, 0, UMSH_ORDER_RELEASE);
        at += (1 + a) * UMSH_LINE + LOCK_SIDE;
    }
    *ns = model_store(w, a, r->m, at, 4, value, UMSH_ORDER_RELEASE);
    return NEXT;
}

/* ---- one event ---- */

static row decode(const job *j, const int32_t *raw) {
    uint32_t code = (uint32_t)raw[0], width = code >> 16;
    int64_t slot = j->instance % j->settings[UMSH_SET_SLOTS];
    row r = {.op = code & 0xFF, .how = code >> 8 & 0xFF, .reg = (uint32_t)raw[2], .value = (uint32_t)raw[3]};
    r.half = width == UMSH_WIDTH_64 ? 4 : (width == UMSH_WIDTH_16_PAIR ? 2 : 0);
    if (raw[1] & UMSH_IN_CONTROL) {
        r.m = j->control;
        r.at = (j->bare ? 0 : UMSH_CONTROL_HEADER) + slot * j->settings[UMSH_SET_CONTROL_SLOT];
        r.at += raw[1] & ~UMSH_IN_CONTROL;
    } else {
        r.m = j->words;
        r.at = slot * j->settings[UMSH_SET_WORDS_SLOT] + raw[1];
    }
    return r;
}

static int do_row(world *w, job *j, const row *r, double *ns) {
    int a = (int)j->agent;
    uint32_t base = base_of(j);
    uint64_t raw;
    switch (r->op) {
    case UMSH_STEP_STORE: return do_store(w, j, r, ns);
    case UMSH_STEP_LOAD: return do_load(w, j, r, ns);
    case UMSH_STEP_FENCE: *ns = model_fence(w, a, r->how); return NEXT;
    case UMSH_STEP_WRITE: *ns = model_write(w, a, r->m, r->at, base + r->value, r->how); return NEXT;
    case UMSH_STEP_READ:
        *ns = model_read(w, a, r->m, r->at, r->how, &raw);
        observe(j, r->reg, raw, 32);
        return NEXT;
    case UMSH_STEP_FILL:
    case UMSH_STEP_CHECK:
    case UMSH_STEP_WARM:
        *ns = r->value * cost(w, j, UMSH_MODEL_BYTE) + cost(w, j, UMSH_MODEL_STORE);
        if (r->op == UMSH_STEP_FILL)
            model_fill(w, a, r->m, r->at, r->value, base + 1, r->how, 1, INT64_MAX / 2);
        else if (r->op == UMSH_STEP_WARM)
            model_warm(w, a, r->m, r->at, r->value);
        else
            *reg_of(j, r->reg) = model_check(w, a, r->m, r->at, r->value, base + 1, r->how, 1) != 0;
        return NEXT;
    case UMSH_STEP_ADD:
    case UMSH_STEP_EXCHANGE:
    case UMSH_STEP_CAS: return do_modify(w, j, r, ns);
    case UMSH_STEP_WAIT:
    case UMSH_STEP_POLL: return do_wait(w, j, r, ns);
    case UMSH_STEP_LOCK: return take(w, j, r, ns);
    case UMSH_STEP_UNLOCK: return give(w, j, r, ns);
    case UMSH_STEP_INCREMENT: return do_increment(w, j, r, ns);
    case UMSH_STEP_TRAFFIC: return do_traffic(w, j, r->value, ns);
    case UMSH_STEP_RENDEZVOUS: return do_rendezvous(w, j, r, ns);
    case UMSH_STEP_DELAY:
        *ns = (double)model_draw(w, r->value + 1ull) * cost(w, j, UMSH_MODEL_TURN);
        return NEXT;
    default: return QUIT;
    }
}

static void end(world *w, job *j) {
    j->live = 0;
    umsh_model_settle(w, (int)j->agent);
}

static void step(world *w, job *j) {
    double ns = 0;
    if (j->instance >= j->instances) {
        end(w, j);
    } else if (j->pc < j->settings[UMSH_SET_STEPS]) {
        row r = decode(j, j->program + 4 * j->pc);
        int what = do_row(w, j, &r, &ns);
        j->time_ns += (int64_t)ns + 1;
        if (what == STAY) return;
        j->pc++;
        j->phase = j->polls = j->late = 0;
        if (what == QUIT) {
            if (!j->bare) tell_header(w, j, UMSH_CONTROL_STOP, 0, 1, UMSH_ORDER_RELAXED);
            end(w, j);
        }
    } else {
        j->instance++;
        j->pc = 0;
        if (!j->bare)
            tell_header(w, j, UMSH_CONTROL_DONE, j->role, (uint32_t)j->instance, UMSH_ORDER_RELEASE);
        j->time_ns += (int64_t)cost(w, j, UMSH_MODEL_STORE) + 1;
    }
}

/* All live jobs, the one furthest behind in time first, give or take the jitter, until `wanted` has ended, is
 * past its deadline, or the events ran out. 1 when it has ended. */
int umsh_model_play(world *w, job *jobs, int count, int wanted, int64_t deadline_ns, int64_t events_max) {
    for (int64_t event = 0; event < events_max && jobs[wanted].live; event++) {
        int turn = wanted;
        int64_t least = INT64_MAX;
        if (jobs[wanted].time_ns > deadline_ns) break;
        for (int j = 0; j < count; j++) {
            int64_t at = jobs[j].time_ns + (int64_t)model_draw(w, JITTER_NS);
            if (jobs[j].live && at < least) {
                least = at;
                turn = j;
            }
        }
        step(w, &jobs[turn]);
        model_disturb(w, MODEL_CPU);
        model_disturb(w, MODEL_GPU);
    }
    model_quiet(w, MODEL_CPU);
    model_quiet(w, MODEL_GPU);
    return !jobs[wanted].live;
}
