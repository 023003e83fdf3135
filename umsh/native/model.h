/* model.h: the rules of the modelled machines (backends/model): caches, coherence, methods, litmus programs.
 */
#ifndef UMSH_MODEL_H
#define UMSH_MODEL_H
#include <stddef.h>
#include <stdint.h>

/* cdef begin */
#define UMSH_MODEL_MEMORIES 4
#define UMSH_MODEL_JOBS 8
#define UMSH_MODEL_STALE 1
#define UMSH_MODEL_REORDER 2
#define UMSH_MODEL_TORN 4
#define UMSH_MODEL_LOST 8
#define UMSH_MODEL_NONATOMIC 16
#define UMSH_MODEL_SKIPS 32
#define UMSH_MODEL_LIES 64
/* Events of an agent, each with its ns in `cost`. */
enum {
    UMSH_MODEL_HIT,
    UMSH_MODEL_MISS,
    UMSH_MODEL_SNOOP,
    UMSH_MODEL_UNCACHED,
    UMSH_MODEL_STORE,
    UMSH_MODEL_FENCE,
    UMSH_MODEL_MODIFY,
    UMSH_MODEL_FLUSH,
    UMSH_MODEL_PAUSE,
    UMSH_MODEL_TURN,
    UMSH_MODEL_POLL,
    UMSH_MODEL_IDLE,
    UMSH_MODEL_BYTE,
    UMSH_MODEL_COSTS
};
/* One memory. images, marks: by agent (CPU 0, GPU 1), a byte and a mark (1 valid, 2 dirty) a cached byte and
 * line of 64 bytes. cached: whether the agent caches it; coherent: whether its accesses snoop the other's. */
typedef struct {
    uint8_t *home, *images[2], *marks[2];
    int64_t nbytes;
    int32_t cached[2], coherent[2];
} umsh_model_memory;
/* A store on its way; memory -1 is a fence between stores. how: 1 release, 2 past the own cache. */
typedef struct {
    int64_t memory, at, nbytes;
    uint64_t value;
    int64_t how;
} umsh_model_entry;
typedef struct {
    umsh_model_memory memory[4];
    double cost[2][16];
    uint64_t chance;
    int64_t faults, cpu_weak;
    int64_t filled[2], heard[2];
    umsh_model_entry buffer[2][16];
    int64_t unheard[2][64][2];
} umsh_model_world;
/* One role of a litmus program (device/steps.h) and where it is. bare: without control words, values count
 * the rounds. poll_ns, round_ns: what a poll and the end of a wait cost beside the access. */
typedef struct {
    int64_t agent, words, control, role, instances, epoch, bare, round_ns;
    int64_t instance, pc, phase, polls, late, kept, side, time_ns, live;
    const int32_t *program;
    const uint32_t *settings;
    uint32_t *registers;
} umsh_model_job;
void umsh_model_settle(umsh_model_world *w, int agent);
void umsh_model_fill(umsh_model_world *w, int agent, int64_t at, int64_t nbytes, uint32_t seed, int method,
                     int64_t every, int64_t held);
int64_t umsh_model_check(umsh_model_world *w, int agent, int64_t at, int64_t nbytes, uint32_t seed,
                         int method, int64_t every);
uint32_t umsh_model_gather(umsh_model_world *w, int agent, int64_t count, uint32_t seed, int64_t stride,
                           int method);
int umsh_model_play(umsh_model_world *w, umsh_model_job *jobs, int count, int wanted, int64_t deadline_ns,
                    int64_t events_max);
/* cdef end */

/* Between model.c and model_steps.c. */
enum { MODEL_CPU, MODEL_GPU };
uint64_t model_draw(umsh_model_world *w, uint64_t n);
double model_load(umsh_model_world *w, int a, int64_t m, int64_t at, int nbytes, int order, int bypass,
                  uint64_t *value);
double model_store(umsh_model_world *w, int a, int64_t m, int64_t at, int nbytes, uint64_t value, int order);
double model_fence(umsh_model_world *w, int a, int order);
double model_modify(umsh_model_world *w, int a, int64_t m, int64_t at, int kind, uint32_t first,
                    uint32_t second, uint32_t *old);
uint32_t model_changed(uint32_t old, int kind, uint32_t first, uint32_t second);
double model_write(umsh_model_world *w, int a, int64_t m, int64_t at, uint32_t value, int method);
double model_read(umsh_model_world *w, int a, int64_t m, int64_t at, int method, uint64_t *value);
void model_fill(umsh_model_world *w, int a, int64_t m, int64_t at, int64_t nbytes, uint32_t seed, int method,
                int64_t every, int64_t held);
int64_t model_check(umsh_model_world *w, int a, int64_t m, int64_t at, int64_t nbytes, uint32_t seed,
                    int method, int64_t every);
void model_warm(umsh_model_world *w, int a, int64_t m, int64_t at, int64_t nbytes);
void model_drain(umsh_model_world *w, int a);
void model_quiet(umsh_model_world *w, int a);
void model_disturb(umsh_model_world *w, int a);
int model_faulty(const umsh_model_world *w, int fault);

#endif
